/** What an implementation could do wrong about runs: outcomes, delays, skips, the adapted interval. */

import type { Mutant } from "./mutation.ts";
import { mutant } from "./mutation.ts";

const OUTCOMES: Mutant[] = [
  mutant(
    "semantics 1",
    "a success keeps its failures",
    "reducer",
    "    ...state,\n    failures: 0,\n    multiplier: 1,\n    notBefore: null,\n    breaker: CLOSED_BREAKER,\n    lastC",
    "    ...state,\n    multiplier: 1,\n    notBefore: null,\n    breaker: CLOSED_BREAKER,\n    lastC",
  ),
  mutant(
    "semantics 1",
    "a failure is not counted",
    "reducer",
    "const failures = state.failures + 1;",
    "const failures = state.failures;",
  ),
  mutant(
    "semantics 1",
    "a snooze ignores its delay",
    "reducer",
    "Math.max(outcome.delayS, floorS(state, now))",
    "Math.max(state.baseS, floorS(state, now))",
  ),
  mutant("semantics 1", "a stopped loop stays live", "reducer", 'life: "stopped", dueFrom: null', "dueFrom: null"),
  mutant(
    "semantics 1",
    "a cancellation counts as a failure",
    "reducer",
    'case "canceled":\n      return scheduled(policy, withoutResult(policy, state), now, chance, floorS(state, now));',
    'case "canceled":\n      return retried(policy, worse(policy, state, outcome, now), now, chance, 0);',
  ),
  mutant(
    "mistake 10",
    "a failure does not record when it completed",
    "reducer",
    "    multiplier: multiplierOf(policy, failures),\n    lastCompleted: now,",
    "    multiplier: multiplierOf(policy, failures),",
  ),
  mutant(
    "edge: a sync function",
    "an overrun run is counted twice",
    "reducer",
    "} else if (before.overran) {",
    "} else if (false) {",
  ),
  mutant(
    "edge: a sync function",
    "an overrun run is over at its timeout",
    "reducer",
    "overran: true }",
    "overran: true, inFlight: 0 }",
  ),
];

const TIME: Mutant[] = [
  mutant(
    "semantics 2",
    "the delay counts from the last due time",
    "schedule",
    "return { ...state, inFlight: 0, dueFrom: now, delayS };",
    "return { ...state, inFlight: 0, dueFrom: (state.dueFrom ?? now) + state.delayS, delayS };",
  ),
  mutant(
    "semantics 2",
    "a tick before the deadline runs",
    "reducer",
    "if (due === null || now < due) return",
    "if (due === null) return",
  ),
  mutant(
    "semantics 2",
    "the first delay is always one interval",
    "reducer",
    "delayS: policy.firstS ?? spread",
    "delayS: spread",
  ),
  mutant("semantics 2", "a fixed rate loses its phase", "schedule", "    tickAt: nextAt,", "    tickAt: now,"),
  mutant("semantics 2", "missed ticks are not counted", "schedule", "(hasFailed ? 0 : passed)", "0"),
  mutant(
    "mistake 7",
    "a backoff on the grid counts from the tick, not from the completion",
    "schedule",
    "hasFailed ? intervalS : 0);",
    "0);",
  ),
  mutant(
    "edge: 8 h suspended",
    "missed ticks are caught up",
    "schedule",
    "nextAt += passed * state.baseS;",
    "nextAt += 0;",
  ),
];

const BACKOFF: Mutant[] = [
  mutant("semantics 3", "the backoff grows by a factor of 3", "schedule", "2 ** failures", "3 ** failures"),
  mutant("semantics 3", "there is no backoff", "schedule", "Math.min(2 ** failures, policy.cap ?? Infinity)", "1"),
  mutant(
    "semantics 3",
    "a success keeps the multiplier",
    "reducer",
    "failures: 0,\n    multiplier: 1,\n    notBefore: null,\n    breaker: CLOSED_BREAKER,\n    lastC",
    "failures: 0,\n    notBefore: null,\n    breaker: CLOSED_BREAKER,\n    lastC",
  ),
  mutant(
    "semantics 3",
    "no delay has an upper bound",
    "schedule",
    "state.multiplier, LONGEST_S)",
    "state.multiplier, Infinity)",
  ),
  mutant("semantics 3", "Retry-After is ignored", "reducer", "now, chance, outcome.delayS);", "now, chance, 0);"),
  mutant(
    "semantics 3",
    "a canceled run forgets the Retry-After",
    "reducer",
    "notBefore: outcome.delayS > 0 ? now + outcome.delayS : null",
    "notBefore: null",
  ),
  mutant(
    "edge: Retry-After longer than the cap",
    "the cap clips Retry-After",
    "schedule",
    "if (delayS < atLeastS) delayS =",
    "if (delayS < atLeastS && atLeastS < intervalS * (policy.cap ?? Infinity)) delayS =",
  ),
  mutant("edge: cap 1", "the cap is ignored", "schedule", "policy.cap ?? Infinity", "Infinity"),
  mutant("edge: cap infinity", "no cap means the default one", "schedule", "policy.cap ?? Infinity", "policy.cap ?? 8"),
];

const JITTER: Mutant[] = [
  mutant("semantics 4", "jitter only delays", "schedule", "(1 + jitter * (2 * chance - 1))", "(1 + jitter * chance)"),
  mutant(
    "semantics 4",
    "jitter compounds",
    "schedule",
    "return { ...state, inFlight: 0, dueFrom: now, delayS };",
    "return { ...state, inFlight: 0, dueFrom: now, delayS, baseS: spread(state.baseS, policy.jitter, chance) };",
  ),
  mutant(
    "semantics 4",
    "jitter undercuts Retry-After",
    "schedule",
    "(1 + jitter * chance)",
    "(1 + jitter * (2 * chance - 1))",
  ),
  mutant(
    "edge: jitter 0",
    "there is always jitter",
    "schedule",
    "(1 + jitter * (2 * chance - 1))",
    "(1 + (jitter || 0.1) * (2 * chance - 1))",
  ),
  mutant(
    "edge: jitter 1",
    "jitter is at most a half",
    "schedule",
    "(1 + jitter * (2 * chance - 1))",
    "(1 + Math.min(jitter, 0.5) * (2 * chance - 1))",
  ),
];

const SKIPS: Mutant[] = [
  mutant(
    "semantics 5",
    "a skip is not counted",
    "reducer",
    "skippedCondition: state.skippedCondition + 1",
    "skippedCondition: state.skippedCondition",
  ),
  mutant(
    "mistake 9",
    "a false condition is a success",
    "reducer",
    'outcomeOf("skipped", "condition")',
    'outcomeOf("ok", "condition")',
  ),
  mutant(
    "mistake 8",
    "a condition that throws is a skip",
    "reducer",
    'outcomeOf("failed", `condition: ${condition}`)',
    'outcomeOf("skipped", condition)',
  ),
];

const ADAPTIVE: Mutant[] = [
  mutant("semantics 9", "a change does not make it faster", "schedule", "state.baseS * adaptive.faster", "state.baseS"),
  mutant(
    "semantics 9",
    "unchanged values do not make it slower",
    "schedule",
    "state.baseS * adaptive.slower",
    "state.baseS",
  ),
  mutant(
    "semantics 9",
    "one unchanged value is enough",
    "schedule",
    "state.unchanged + 1 < adaptive.patience",
    "false",
  ),
  mutant(
    "semantics 9",
    "the base has no maximum",
    "schedule",
    "Math.min(adaptive.maximumS, Math.max(adaptive.minimumS, baseS))",
    "Math.max(adaptive.minimumS, baseS)",
  ),
  mutant("semantics 9", "the base has no minimum", "schedule", "Math.max(adaptive.minimumS, baseS)", "baseS"),
];

export const MUTANTS_OF_RUNS: readonly Mutant[] = [...OUTCOMES, ...TIME, ...BACKOFF, ...JITTER, ...SKIPS, ...ADAPTIVE];
