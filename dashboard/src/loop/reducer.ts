/**
 * The loop's one decision: (state, event, now) → (state, effect).
 *
 * Pure: the clock's reading and the number drawn for jitter are arguments. The same conformance vectors prove this
 * implementation and the one in Python.
 *
 * - There is one deadline. A tick that does not match it decides nothing, so no forgotten timer can start a run.
 * - At most one run is under way. What comes during a run becomes at most one follow-up.
 * - A result is counted once, by the generation that began it. Results of other runs are dropped.
 * - Skips, snoozes and cancellations never touch the failure count.
 */

import { CLOSED_BREAKER, abandoned, ask, failedCall, retryAt } from "./breaker.ts";
import type { LoopEvent, Step } from "./events.ts";
import type { LoopPolicy } from "./policy.ts";
import { STAGGER_S } from "./policy.ts";
import { adapted, multiplierOf, nextTick, offGrid, onGrid, scheduled, spread, spreadUp } from "./schedule.ts";
import type { Followup, LoopState, Outcome, PauseReason } from "./state.ts";
import { FORCED, NO_FOLLOWUP, WANTED, nextDueOf } from "./state.ts";

type EventOf<Type extends LoopEvent["type"]> = Extract<LoopEvent, { type: Type }>;

/** Decide. `chance`, from 0 up to 1, is the number drawn for jitter; 0.5 displaces nothing. */
export function reduce(policy: LoopPolicy, state: LoopState, event: LoopEvent, now: number, chance = 0.5): Step {
  switch (event.type) {
    case "start":
      return start(policy, state, now, chance);
    case "tick":
      return tick(policy, state, event, now, chance);
    case "finished":
      return finished(policy, state, event, now, chance);
    case "overran":
      return overran(policy, state, event, now);
    case "trigger":
      return trigger(policy, state, event, now);
    case "pause":
      return [heldAs(policy, { ...state, pauses: withReason(state.pauses, event.reason ?? "operator") }), "none"];
    case "resume":
      return resume(policy, state, event, now);
    case "reset":
      return reset(policy, state, now, chance);
    case "replace":
      return replace(policy, state, now, chance);
    case "push_up":
      return pushUp(policy, state, now);
    case "push_down":
      return pushDown(policy, state, now, chance);
    case "close":
      return close(state);
  }
}

/** Return whether the loop runs once this reason is gone, and its time is over already. */
export function isStaleOnceResumed(policy: LoopPolicy, state: LoopState, reason: PauseReason, now: number): boolean {
  if (!state.pauses.includes(reason)) return false;
  const [after] = resume(policy, state, { type: "resume", reason }, now);
  return nextDueOf(after) !== null && after.dueFrom === now && after.delayS === 0;
}

function start(policy: LoopPolicy, state: LoopState, now: number, chance: number): Step {
  if (state.life === "live" || state.life === "stopped") return [state, "none"];
  return [begunAnew(policy, state, now, chance), "none"];
}

function replace(policy: LoopPolicy, state: LoopState, now: number, chance: number): Step {
  if (state.life === "idle" || state.life === "closed") {
    const waiting = { ...state, generation: state.generation + 1, baseS: policy.everyS };
    return [heldAs(policy, waiting), "none"];
  }
  return [begunAnew(policy, state, now, chance), "none"];
}

/** Fresh failures, base and deadline. Pause reasons stay, and a run under way too: the new function waits for it. */
function begunAnew(policy: LoopPolicy, state: LoopState, now: number, chance: number): LoopState {
  return heldAs(policy, {
    ...state,
    generation: state.generation + 1,
    life: "live",
    baseS: policy.everyS,
    failures: 0,
    multiplier: 1,
    unchanged: 0,
    dueFrom: now,
    delayS: policy.firstS ?? spread(policy.everyS, policy.jitter, chance),
    tickAt: now + (policy.firstS ?? policy.everyS),
    pushAlive: false,
    breaker: CLOSED_BREAKER,
    stopReason: null,
    notBefore: null,
  });
}

function tick(policy: LoopPolicy, state: LoopState, event: EventOf<"tick">, now: number, chance: number): Step {
  const due = nextDueOf(state);
  if (due === null || now < due) return [state, "none"];
  const condition = event.condition ?? true;
  if (condition === false) {
    return [settled(policy, state, outcomeOf("skipped", "condition"), now, chance), "none"];
  }
  const asked =
    policy.breaker === null
      ? { breaker: state.breaker, isAllowed: true }
      : ask(policy.breaker, state.breaker, now, false);
  const next = { ...state, breaker: asked.breaker };
  if (condition !== true) {
    // The breaker was asked first: a condition that throws where the probe was due is a probe that failed.
    return [settled(policy, next, outcomeOf("failed", `condition: ${condition}`), now, chance), "none"];
  }
  if (asked.isAllowed || policy.breaker === null) return [begun(next, now), "run"];
  return [{ ...next, dueFrom: now, delayS: retryAt(policy.breaker, asked.breaker, now) - now }, "none"];
}

function begun(state: LoopState, now: number): LoopState {
  const number = state.runs + 1;
  return { ...state, runs: number, inFlight: number, lastStarted: now, followup: NO_FOLLOWUP };
}

function trigger(policy: LoopPolicy, state: LoopState, event: EventOf<"trigger">, now: number): Step {
  const wanted = event.force === true ? FORCED : WANTED;
  const refusal = refusalOf(state, wanted);
  if (refusal !== null) return [refused(state, refusal), "skip"];
  if (state.inFlight) return [{ ...state, followup: larger(state.followup, wanted) }, "join"];
  return [probe(policy, state, now), "run"];
}

/** Run now. With an open breaker this run is the probe. It stands for no tick of a fixed rate. */
function probe(policy: LoopPolicy, state: LoopState, now: number): LoopState {
  const breaker = policy.breaker === null ? state.breaker : ask(policy.breaker, state.breaker, now, true).breaker;
  return begun(offGrid(policy, { ...state, breaker }, now), now);
}

/** Return why a trigger leads to no run, or null. Being hidden is not a reason: a caller asks for it. */
function refusalOf(state: LoopState, wanted: Followup): "stopped" | "paused" | null {
  if (state.life !== "live") return "stopped";
  if (state.pauses.includes("shutdown")) return "paused";
  return state.pauses.includes("operator") && wanted !== FORCED ? "paused" : null;
}

function refused(state: LoopState, reason: "stopped" | "paused"): LoopState {
  return reason === "paused"
    ? { ...state, skippedPaused: state.skippedPaused + 1 }
    : { ...state, skippedStopped: state.skippedStopped + 1 };
}

function larger(one: Followup, other: Followup): Followup {
  return one > other ? one : other;
}

function finished(
  policy: LoopPolicy,
  before: LoopState,
  event: EventOf<"finished">,
  now: number,
  chance: number,
): Step {
  if (!before.inFlight || event.run !== before.inFlight) return [before, "none"];
  let state: LoopState = { ...before, overran: false };
  if (event.generation !== state.generation || state.life === "closed") {
    state = { ...state, inFlight: 0 };
  } else if (before.overran) {
    // Its failure was counted at the timeout. The delay counts from now, when the function has returned.
    state = retried(policy, state, now, chance, floorS(state, now));
  } else {
    state = settled(policy, state, event.outcome, now, chance);
  }
  if (state.followup === NO_FOLLOWUP) return [state, "none"];
  const refusal = refusalOf(state, state.followup);
  if (refusal !== null) return [{ ...refused(state, refusal), followup: NO_FOLLOWUP }, "skip"];
  return [probe(policy, state, now), "run"];
}

/** Count the failure at the timeout. The run stays under way, so that the function never overlaps itself. */
function overran(policy: LoopPolicy, state: LoopState, event: EventOf<"overran">, now: number): Step {
  const isOurs = state.inFlight > 0 && event.run === state.inFlight && event.generation === state.generation;
  if (!isOurs || state.overran || state.life !== "live") return [state, "none"];
  return [{ ...worse(policy, state, event.outcome, now), overran: true }, "none"];
}

/** Count the outcome and set the one deadline. */
function settled(policy: LoopPolicy, state: LoopState, outcome: Outcome, now: number, chance: number): LoopState {
  switch (outcome.kind) {
    case "ok":
      return succeeded(policy, state, outcome, now, chance);
    case "failed":
      return retried(policy, worse(policy, state, outcome, now), now, chance, outcome.delayS);
    case "snoozed": {
      const delayS = Math.max(outcome.delayS, floorS(state, now));
      const snoozed = { ...withoutResult(policy, state), lastCompleted: now, inFlight: 0 };
      return { ...onGrid(policy, snoozed, now + delayS), dueFrom: now, delayS };
    }
    case "stopped": {
      const ended = { ...withoutResult(policy, state), lastCompleted: now, inFlight: 0 };
      return { ...ended, life: "stopped", dueFrom: null, stopReason: outcome.reason };
    }
    case "skipped": {
      // A condition that is asked inside the run, because it answers with a promise, makes it no run.
      const runs = state.runs - (state.inFlight ? 1 : 0);
      const counted = { ...withoutResult(policy, state), runs, skippedCondition: state.skippedCondition + 1 };
      return scheduled(policy, counted, now, chance, floorS(state, now));
    }
    case "canceled":
      return scheduled(policy, withoutResult(policy, state), now, chance, floorS(state, now));
  }
}

/** Return what is left of the remote's Retry-After. Only an answer ends it, not a run without one. */
function floorS(state: LoopState, now: number): number {
  return state.notBefore === null ? 0 : Math.max(0, state.notBefore - now);
}

/** A probe that ended without an answer leaves the breaker open for another one. */
function withoutResult(policy: LoopPolicy, state: LoopState): LoopState {
  return policy.breaker === null ? state : { ...state, breaker: abandoned(state.breaker) };
}

function succeeded(policy: LoopPolicy, state: LoopState, outcome: Outcome, now: number, chance: number): LoopState {
  const [baseS, unchanged] = adapted(policy, state, outcome.changed);
  const better: LoopState = {
    ...state,
    failures: 0,
    multiplier: 1,
    notBefore: null,
    breaker: CLOSED_BREAKER,
    lastCompleted: now,
    lastOk: now,
    baseS,
    unchanged,
  };
  return scheduled(policy, better, now, chance);
}

/** Count a failure. */
function worse(policy: LoopPolicy, state: LoopState, outcome: Outcome, now: number): LoopState {
  const failures = state.failures + 1;
  return {
    ...state,
    failures,
    multiplier: multiplierOf(policy, failures),
    lastCompleted: now,
    lastError: outcome.reason,
    notBefore: outcome.delayS > 0 ? now + outcome.delayS : null,
    breaker: policy.breaker === null ? state.breaker : failedCall(policy.breaker, state.breaker, now),
  };
}

/** Set the deadline after a failure that is counted already. */
function retried(policy: LoopPolicy, state: LoopState, now: number, chance: number, atLeastS: number): LoopState {
  if (policy.breaker === null || state.breaker.openedAt === null) {
    return scheduled(policy, state, now, chance, atLeastS);
  }
  // While the breaker is open its cooldown decides, not the backoff.
  const cooldownS = Math.max(retryAt(policy.breaker, state.breaker, now) - now, atLeastS, 0);
  if (policy.fixedRate) return nextTick(policy, state, now, chance, { intervalS: 0, atLeastS: cooldownS });
  return { ...state, inFlight: 0, dueFrom: now, delayS: spreadUp(cooldownS, policy.jitter, chance) };
}

function resume(policy: LoopPolicy, before: LoopState, event: EventOf<"resume">, now: number): Step {
  const reason = event.reason ?? "operator";
  if (!before.pauses.includes(reason)) return [before, "none"];
  const state = heldAs(policy, { ...before, pauses: before.pauses.filter((one) => one !== reason) });
  const due = nextDueOf(state);
  if (due === null || due > now) return [state, "none"];
  // Only the deadline moves: a loop that is hidden again before it comes does not run.
  const moved = { ...state, dueFrom: now, delayS: (event.position ?? 0) * STAGGER_S };
  return [onGrid(policy, moved, now), "none"];
}

function withReason(reasons: readonly PauseReason[], reason: PauseReason): readonly PauseReason[] {
  return reasons.includes(reason) ? reasons : [...reasons, reason].sort();
}

/** Set what the pause reasons mean under this policy: held, slowed down, or nothing. */
function heldAs(policy: LoopPolicy, state: LoopState): LoopState {
  const slows = policy.slowWhenHidden !== null && state.pauses.includes("hidden");
  const stopping = slows ? state.pauses.filter((one) => one !== "hidden") : state.pauses;
  const slowdown = slows && policy.slowWhenHidden !== null ? policy.slowWhenHidden : 1;
  return { ...state, held: stopping.length > 0, slowdown };
}

function reset(policy: LoopPolicy, state: LoopState, now: number, chance: number): Step {
  const fresh: LoopState = {
    ...state,
    life: state.life === "stopped" ? "live" : state.life,
    failures: 0,
    multiplier: 1,
    baseS: policy.everyS,
    unchanged: 0,
    breaker: CLOSED_BREAKER,
    stopReason: null,
    notBefore: null,
  };
  if (fresh.life !== "live" || fresh.inFlight) return [fresh, "none"];
  return [scheduled(policy, offGrid(policy, fresh, now), now, chance), "none"];
}

/** Connected: look once at once, for what was missed while nothing was listening. A backoff is respected. */
function pushUp(policy: LoopPolicy, state: LoopState, now: number): Step {
  if (state.pushAlive || state.life !== "live") return [state, "none"];
  const alive: LoopState = { ...state, pushAlive: true };
  if (state.inFlight) return [{ ...alive, followup: larger(state.followup, WANTED) }, "none"];
  if (state.failures) return [alive, "none"];
  return [{ ...offGrid(policy, alive, now), dueFrom: now, delayS: 0 }, "none"];
}

/** Lost: the ordinary interval counts from the last look, so an overdue loop runs now. */
function pushDown(policy: LoopPolicy, state: LoopState, now: number, chance: number): Step {
  if (!state.pushAlive) return [state, "none"];
  const alone: LoopState = { ...state, pushAlive: false };
  if (state.inFlight || state.lastCompleted === null || state.life !== "live") return [alone, "none"];
  // After a failure push changed nothing about the delay, and a Retry-After in it is a floor.
  if (state.failures) return [alone, "none"];
  let [dueFrom, delayS] = [state.lastCompleted, spread(state.baseS, policy.jitter, chance)];
  let due = dueFrom + delayS * state.slowdown;
  if (due <= now) [dueFrom, delayS, due] = [now, 0, now];
  if (state.dueFrom !== null && due >= state.dueFrom + state.delayS * state.slowdown) return [alone, "none"];
  return [{ ...offGrid(policy, alone, due), dueFrom, delayS }, "none"];
}

function close(state: LoopState): Step {
  const closed: LoopState = { ...state, life: "closed", dueFrom: null, followup: NO_FOLLOWUP, pushAlive: false };
  return [closed, state.inFlight ? "cancel" : "none"];
}

function outcomeOf(kind: Outcome["kind"], reason: string): Outcome {
  return { kind, reason, delayS: 0, changed: null };
}
