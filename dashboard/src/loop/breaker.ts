/**
 * Breaker: stops calling what keeps failing, and lets one probe find out whether it still does.
 *
 *             Nth failure in a row             cooldown over, or forced
 *    closed ──────────────────────▶ open ─────────────────────────────▶ half-open
 *       ▲                            ▲                                   │  │
 *       │                            └── probe failed, or gave no answer ┘  │
 *       └────────────────────────────────── probe succeeded ────────────────┘
 *
 * At most one probe is out at a time. A probe that is silent for a whole cooldown counts as failed.
 */

export interface BreakerPolicy {
  /** How many failures in a row open it. */
  readonly failures: number;
  readonly cooldownS: number;
}

export interface BreakerState {
  readonly failures: number;
  readonly openedAt: number | null;
  readonly probeAt: number | null;
}

export const CLOSED_BREAKER: BreakerState = { failures: 0, openedAt: null, probeAt: null };

/** Decide whether to call now. While it is not closed, a yes makes the call the probe. `force` skips the cooldown. */
export function ask(
  policy: BreakerPolicy,
  before: BreakerState,
  now: number,
  force: boolean,
): { breaker: BreakerState; isAllowed: boolean } {
  const breaker = withoutLostProbe(policy, before, now);
  if (breaker.openedAt === null) return { breaker, isAllowed: true };
  if (breaker.probeAt !== null) return { breaker, isAllowed: false };
  if (force || now >= breaker.openedAt + policy.cooldownS) {
    return { breaker: { ...breaker, probeAt: now }, isAllowed: true };
  }
  return { breaker, isAllowed: false };
}

/** Count a failed call: the Nth in a row opens it, a failed probe re-opens it with a fresh cooldown. */
export function failedCall(policy: BreakerPolicy, breaker: BreakerState, now: number): BreakerState {
  const failures = breaker.failures + 1;
  const opens = breaker.openedAt === null ? failures >= policy.failures : breaker.probeAt !== null;
  return { failures, openedAt: opens ? now : breaker.openedAt, probeAt: null };
}

/** The probe ended without an answer: another one may leave. */
export function abandoned(breaker: BreakerState): BreakerState {
  return { ...breaker, probeAt: null };
}

/** Return when the next call may be allowed. */
export function retryAt(policy: BreakerPolicy, breaker: BreakerState, now: number): number {
  if (breaker.openedAt === null) return now;
  const openedAt = breaker.probeAt === null ? breaker.openedAt : breaker.probeAt + policy.cooldownS;
  return Math.max(now, openedAt + policy.cooldownS);
}

function withoutLostProbe(policy: BreakerPolicy, breaker: BreakerState, now: number): BreakerState {
  if (breaker.probeAt === null || now < breaker.probeAt + policy.cooldownS) return breaker;
  return { failures: breaker.failures + 1, openedAt: breaker.probeAt + policy.cooldownS, probeAt: null };
}
