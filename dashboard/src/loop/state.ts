/**
 * What a loop is at one instant: a snapshot that never changes, and the words for its phases and outcomes.
 *
 * The snapshot holds everything that the reducer needs, and no timer, promise or error. Phase and next due time are
 * computed from it, so they cannot contradict the rest.
 *
 *            start                 due / trigger
 *    idle ──────────▶ waiting ─────────────────────▶ running ──▶ waiting · open · stopped
 *                      ▲   │ pause                      │
 *              resume  │   ▼                            ▼ close
 *                     paused                         closed ──start──▶ waiting
 */

import type { BreakerState } from "./breaker.ts";
import { CLOSED_BREAKER } from "./breaker.ts";
import type { LoopPolicy } from "./policy.ts";

export type Phase = "idle" | "waiting" | "running" | "paused" | "open" | "stopped" | "closed";

/** The part of the phase that only an explicit event changes. */
export type Life = "idle" | "live" | "stopped" | "closed";

export type PauseReason = "hidden" | "operator" | "shutdown";

export type OutcomeKind = "ok" | "failed" | "snoozed" | "stopped" | "skipped" | "canceled";

/** How a run ended; also what `await loop.trigger()` gives. */
export interface Outcome {
  readonly kind: OutcomeKind;
  readonly reason: string | null;
  /** failed: the earliest retry that the remote allows; snoozed: the delay that the function asked for. */
  readonly delayS: number;
  /** ok: whether the value differs from the last one; null where the function gives no value. */
  readonly changed: boolean | null;
}

/** Whether one more run is owed for triggers that came during a run. */
export const NO_FOLLOWUP = 0;
export const WANTED = 1;
export const FORCED = 2;
export type Followup = typeof NO_FOLLOWUP | typeof WANTED | typeof FORCED;

/** One loop at one instant. Instants are seconds of a monotonic clock. */
export interface LoopState {
  readonly baseS: number;
  readonly generation: number;
  readonly life: Life;
  readonly runs: number;
  /** The number of the run under way, 0 for none. A result that carries another number is dropped. */
  readonly inFlight: number;
  /** The run under way is past its timeout: the failure is counted, but the function has not returned. */
  readonly overran: boolean;
  readonly followup: Followup;
  readonly failures: number;
  readonly multiplier: number;
  readonly unchanged: number;
  /** The instant from which `delayS` counts. */
  readonly dueFrom: number | null;
  readonly delayS: number;
  /** A Retry-After that still holds: a run that ends without an answer does not make the next one earlier. */
  readonly notBefore: number | null;
  readonly tickAt: number | null;
  readonly missedTicks: number;
  readonly pauses: readonly PauseReason[];
  /** A pause reason stops the loop. A reason that only slows it down does not hold it. */
  readonly held: boolean;
  readonly slowdown: number;
  readonly pushAlive: boolean;
  readonly breaker: BreakerState;
  readonly lastStarted: number | null;
  readonly lastCompleted: number | null;
  readonly lastOk: number | null;
  readonly lastError: string | null;
  readonly stopReason: string | null;
  readonly skippedCondition: number;
  readonly skippedPaused: number;
  readonly skippedStopped: number;
}

/** The state of a loop that was registered just now. */
export function initial(policy: LoopPolicy): LoopState {
  return {
    baseS: policy.everyS,
    generation: 0,
    life: "idle",
    runs: 0,
    inFlight: 0,
    overran: false,
    followup: NO_FOLLOWUP,
    failures: 0,
    multiplier: 1,
    unchanged: 0,
    dueFrom: null,
    delayS: 0,
    notBefore: null,
    tickAt: null,
    missedTicks: 0,
    pauses: [],
    held: false,
    slowdown: 1,
    pushAlive: false,
    breaker: CLOSED_BREAKER,
    lastStarted: null,
    lastCompleted: null,
    lastOk: null,
    lastError: null,
    stopReason: null,
    skippedCondition: 0,
    skippedPaused: 0,
    skippedStopped: 0,
  };
}

/** Return the one word for where the loop stands. */
export function phaseOf(state: LoopState): Phase {
  if (state.life === "closed" || state.life === "idle") return state.life;
  if (state.inFlight) return "running";
  if (state.life === "stopped") return "stopped";
  if (state.held) return "paused";
  return state.breaker.openedAt === null ? "waiting" : "open";
}

/** Return when the loop runs next, or null while nothing is scheduled. There is no other deadline. */
export function nextDueOf(state: LoopState): number | null {
  if (state.inFlight || state.held || state.dueFrom === null || state.life !== "live") return null;
  return state.dueFrom + state.delayS * state.slowdown;
}

/** Return the runs that did not happen, counted by reason, without the zeros. */
export function skipsOf(state: LoopState): Record<string, number> {
  const counts = { condition: state.skippedCondition, paused: state.skippedPaused, stopped: state.skippedStopped };
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
}
