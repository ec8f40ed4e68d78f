/**
 * What the function of a loop may answer, and what it means.
 *
 *     undefined, null, true   success                  false   failure
 *     ok(value)               success with a value     failed(reason, retryAfter)
 *     snooze("10s")           look again then          stop(reason)   never again
 *
 * Judged by identity: 0, "" and [] are not failures. Any other value is a success, with one warning.
 */

import type { Duration } from "./duration.ts";
import { retryAfterS, seconds } from "./duration.ts";
import type { Outcome } from "./state.ts";

const TEXT_LIMIT = 500;
const ANSWER = Symbol.for("everpoll-loop.answer");

/** An answer made by `ok`, `failed`, `snooze` or `stop`. */
export interface Answer {
  readonly [ANSWER]: "ok" | "failed" | "snoozed" | "stopped";
  readonly reason: string | null;
  readonly delayS: number;
  readonly value?: unknown;
}

export type LoopResult = boolean | null | undefined | void | Answer;

export const SUCCESS: Outcome = { kind: "ok", reason: null, delayS: 0, changed: null };
export const CANCELED: Outcome = { kind: "canceled", reason: null, delayS: 0, changed: null };
export const CONDITION_SKIP: Outcome = { kind: "skipped", reason: "condition", delayS: 0, changed: null };
export const TIMED_OUT: Outcome = failure("timeout");

/** Success. The value is compared with the last one, for `adaptive` intervals. */
export function ok(value?: unknown): Answer {
  return { [ANSWER]: "ok", reason: null, delayS: 0, value };
}

/**
 * Failure with its reason. `retryAfter` is a floor for the next delay, whatever the cap says: a duration, or the text
 * of a Retry-After header (`response.headers.get("Retry-After")`).
 */
export function failed(reason = "failed", retryAfter?: Duration | string | null): Answer {
  return { [ANSWER]: "failed", reason, delayS: retryAfterS(retryAfter, Date.now()) };
}

/** No answer yet: look again after this delay, without counting a failure. */
export function snooze(delay: Duration): Answer {
  return { [ANSWER]: "snoozed", reason: null, delayS: seconds(delay, "snooze") };
}

/** The loop has done its work: it runs no more until `reset()`. */
export function stop(reason = "done"): Answer {
  return { [ANSWER]: "stopped", reason, delayS: 0 };
}

export function isAnswer(result: unknown): result is Answer {
  return typeof result === "object" && result !== null && ANSWER in result;
}

/** Return the outcome that a returned value stands for, or null for a value that has no meaning. */
export function judge(result: unknown): Outcome | null {
  if (result === undefined || result === null || result === true) return SUCCESS;
  if (result === false) return failure("returned false");
  if (!isAnswer(result)) return null;
  const reason = result.reason === null ? null : short(result.reason);
  return { kind: result[ANSWER], reason, delayS: result.delayS, changed: null };
}

/** Return a failure with this reason. */
export function failure(reason: string): Outcome {
  return { kind: "failed", reason: short(reason), delayS: 0, changed: null };
}

/** Return the text that is kept of something thrown. */
export function textOf(error: unknown): string {
  if (!(error instanceof Error)) return short(String(error));
  return short(error.message ? `${error.name}: ${error.message}` : error.name);
}

function short(text: string): string {
  return text.length <= TEXT_LIMIT ? text : `${text.slice(0, TEXT_LIMIT - 1)}…`;
}
