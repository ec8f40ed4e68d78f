/**
 * The one deadline of a loop: how far away it is after a run, and where a fixed rate's ticks lie.
 *
 * Pure: the number drawn for jitter is an argument.
 */

import type { LoopPolicy } from "./policy.ts";
import { LONGEST_S } from "./policy.ts";
import type { LoopState } from "./state.ts";

/** Return the delay moved by up to ± jitter. A chance of 0.5 leaves it alone. */
export function spread(delayS: number, jitter: number, chance: number): number {
  return delayS * (1 + jitter * (2 * chance - 1));
}

/** Return the delay moved upward by up to jitter: for floors, where earlier is forbidden. */
export function spreadUp(delayS: number, jitter: number, chance: number): number {
  return delayS * (1 + jitter * chance);
}

/** Return 2^failures, at most the cap. 2^2000 is Infinity, which the longest delay bounds. */
export function multiplierOf(policy: LoopPolicy, failures: number): number {
  return Math.min(2 ** failures, policy.cap ?? Infinity);
}

/** Return the adapted base interval and the streak of unchanged values, after one more success with a value. */
export function adapted(policy: LoopPolicy, state: LoopState, changed: boolean | null): readonly [number, number] {
  const adaptive = policy.adaptive;
  if (adaptive === null || changed === null) return [state.baseS, state.unchanged];
  const bounded = (baseS: number): number => Math.min(adaptive.maximumS, Math.max(adaptive.minimumS, baseS));
  if (changed) return [bounded(state.baseS * adaptive.faster), 0];
  if (state.unchanged + 1 < adaptive.patience) return [state.baseS, state.unchanged + 1];
  return [bounded(state.baseS * adaptive.slower), 0];
}

/** Set the deadline after a run or a skip that ended now. */
export function scheduled(policy: LoopPolicy, state: LoopState, now: number, chance: number, atLeastS = 0): LoopState {
  const calmS = state.pushAlive && policy.safetyEveryS !== null ? policy.safetyEveryS : state.baseS;
  const intervalS = Math.min((state.failures ? state.baseS : calmS) * state.multiplier, LONGEST_S);
  if (policy.fixedRate) return nextTick(policy, state, now, chance, { intervalS, atLeastS });
  let delayS = spread(intervalS, policy.jitter, chance);
  // Retry-After is a floor that the cap does not clip: calling earlier gets the client banned.
  if (delayS < atLeastS) delayS = spreadUp(atLeastS, policy.jitter, chance);
  return { ...state, inFlight: 0, dueFrom: now, delayS };
}

/** Set the deadline to the next tick of the grid. Jitter displaces the run, never the grid. */
export function nextTick(
  policy: LoopPolicy,
  state: LoopState,
  now: number,
  chance: number,
  waits: { readonly intervalS: number; readonly atLeastS: number },
): LoopState {
  if (state.tickAt === null) throw new Error("a live loop has a tick");
  const { intervalS, atLeastS } = waits;
  const hasFailed = state.failures > 0;
  // A backoff counts from the completion, here too: the next tick is the first one that is that far away.
  const earliest = now + Math.max(atLeastS, hasFailed ? intervalS : 0);
  // The tick that ended may still lie ahead, because jitter displaces runs both ways. It is over all the same.
  let nextAt = state.tickAt + (hasFailed ? state.baseS : intervalS);
  let passed = 0;
  if (nextAt < earliest || nextAt <= now) {
    // A rounding error is not a tick: 0.1 + 0.2 is a little more than 0.3.
    const late = Math.ceil((earliest - nextAt) / state.baseS - 1e-9);
    passed = Math.max(late, Math.floor((now - nextAt) / state.baseS) + 1);
    nextAt += passed * state.baseS;
  }
  const displacedS = spread(state.baseS, policy.jitter, chance) - state.baseS;
  return {
    ...state,
    inFlight: 0,
    tickAt: nextAt,
    missedTicks: state.missedTicks + (hasFailed ? 0 : passed),
    dueFrom: now,
    delayS: Math.max(atLeastS, nextAt + displacedS - now, 0),
  };
}

/** Move a fixed rate's tick to the last one before an instant, so that the ticks up to it do not count as missed. */
export function onGrid(policy: LoopPolicy, state: LoopState, instant: number): LoopState {
  if (!policy.fixedRate || state.tickAt === null || state.tickAt > instant) return state;
  return offGrid(policy, state, instant);
}

/** A run at this instant stands for no tick: the next tick comes after it, and none before it was missed. */
export function offGrid(policy: LoopPolicy, state: LoopState, instant: number): LoopState {
  if (!policy.fixedRate || state.tickAt === null) return state;
  const ticks = Math.floor((instant - state.tickAt) / state.baseS);
  return { ...state, tickAt: state.tickAt + ticks * state.baseS };
}
