/** What can happen to a loop, and what its shell does about it. Both are plain data, as in the conformance vectors. */

import type { LoopState, Outcome, PauseReason } from "./state.ts";

export type LoopEvent =
  /** The loops were started, or this one was registered while they run. */
  | { readonly type: "start" }
  /** The deadline has come. A text in place of the condition's answer is the error that it threw. */
  | { readonly type: "tick"; readonly condition?: boolean | string }
  /** A run has ended. */
  | { readonly type: "finished"; readonly run: number; readonly generation: number; readonly outcome: Outcome }
  /** A run has failed by its timeout, but its function goes on; `finished` follows when it returns. */
  | { readonly type: "overran"; readonly run: number; readonly generation: number; readonly outcome: Outcome }
  /** A caller wants a run now. */
  | { readonly type: "trigger"; readonly force?: boolean }
  | { readonly type: "pause"; readonly reason?: PauseReason }
  /** `position` is the place among the stale loops that resume together. */
  | { readonly type: "resume"; readonly reason?: PauseReason; readonly position?: number }
  /** Forget the failures. */
  | { readonly type: "reset" }
  /** The name was registered again: the reducer gets the new policy. */
  | { readonly type: "replace" }
  /** A push channel is connected: polling becomes the safety net. */
  | { readonly type: "push_up" }
  | { readonly type: "push_down" }
  /** No more runs. */
  | { readonly type: "close" };

/**
 * What the shell does after a step. It also sets its one timer to the next due time.
 *
 * run: start the run with the number `state.inFlight`. join: the trigger shares the one follow-up of the run under way.
 * skip: the trigger, or the follow-up that was owed, leads to no run. cancel: cancel the run under way.
 */
export type Effect = "none" | "run" | "join" | "skip" | "cancel";

export type Step = readonly [state: LoopState, effect: Effect];
