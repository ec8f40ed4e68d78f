/** Polling that behaves: one deadline per loop, backoff, pauses while hidden, triggers that coalesce. */

export type { Clock, Log } from "./clock.ts";
export { SYSTEM_CLOCK } from "./clock.ts";
export type { Duration } from "./duration.ts";
export { BadInput } from "./errors.ts";
export type { Effect, LoopEvent, Step } from "./events.ts";
export type { Loop, Snapshot } from "./loop.ts";
export type { LoopsOptions } from "./loops.ts";
export { Loops } from "./loops.ts";
export type { Answer, LoopResult } from "./outcome.ts";
export { failed, ok, snooze, stop } from "./outcome.ts";
export type { PageOptions, PageWindow } from "./page.ts";
export { followPage } from "./page.ts";
export type { LoopOptions, LoopPolicy } from "./policy.ts";
export { DEFAULTS, policyOf } from "./policy.ts";
export { isStaleOnceResumed, reduce } from "./reducer.ts";
export type { LoopFunction } from "./run.ts";
export type { LoopState, Outcome, OutcomeKind, PauseReason, Phase } from "./state.ts";
export { initial, nextDueOf, phaseOf, skipsOf } from "./state.ts";
