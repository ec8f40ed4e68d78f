/**
 * A mutant of each rule makes a vector fail: the vectors would notice an implementation that forgot the rule.
 *
 * The rules have the names that they have in the vectors.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { ModuleName } from "./mutation.ts";
import { firstDifference, implementationWith, mutated } from "./mutation.ts";
import { readCases } from "./vectors.ts";

interface Mutant {
    readonly rule: string;
    /** What the mutant does wrong. */
    readonly does: string;
    readonly module: ModuleName;
    readonly from: string;
    readonly to: string;
}

function mutant(rule: string, does: string, module: ModuleName, from: string, to: string): Mutant {
    return { rule, does, module, from, to };
}

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
    mutant(
        "edge: cap infinity",
        "no cap means the default one",
        "schedule",
        "policy.cap ?? Infinity",
        "policy.cap ?? 8",
    ),
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

const TRIGGERS: Mutant[] = [
    mutant(
        "semantics 6",
        "a trigger does not run a waiting loop",
        "reducer",
        'return [probe(policy, state, now), "run"];\n}\n\n/** Run now.',
        'return [state, "none"];\n}\n\n/** Run now.',
    ),
    mutant(
        "semantics 6",
        "triggers during a run are lost",
        "reducer",
        '[{ ...state, followup: larger(state.followup, wanted) }, "join"]',
        '[state, "join"]',
    ),
    mutant("semantics 6", "force means nothing", "reducer", "event.force === true ? FORCED : WANTED", "WANTED"),
    mutant(
        "semantics 6",
        "a shutdown can be forced",
        "reducer",
        'if (state.pauses.includes("shutdown")) return "paused";',
        "",
    ),
    mutant(
        "mistake 6",
        "a trigger runs in spite of an operator's pause",
        "reducer",
        'state.pauses.includes("operator") && wanted !== FORCED',
        "false",
    ),
    mutant(
        "edge: 100 triggers during one run",
        "the follow-up is owed for ever",
        "reducer",
        "lastStarted: now, followup: NO_FOLLOWUP",
        "lastStarted: now",
    ),
    mutant(
        "edge: trigger while paused",
        "a hidden loop refuses triggers",
        "reducer",
        'state.pauses.includes("operator") && wanted',
        'state.pauses.includes("hidden") && wanted',
    ),
    mutant(
        "edge: trigger while open",
        "a trigger is no probe",
        "reducer",
        "ask(policy.breaker, state.breaker, now, true)",
        "ask(policy.breaker, state.breaker, now, false)",
    ),
];

const PAUSES: Mutant[] = [
    mutant("semantics 7", "a pause does not hold", "reducer", "held: stopping.length > 0", "held: false"),
    mutant(
        "semantics 7",
        "one resume ends every pause",
        "reducer",
        "before.pauses.filter((one) => one !== reason)",
        "[]",
    ),
    mutant(
        "semantics 7",
        "hidden does not slow down",
        "reducer",
        "policy.slowWhenHidden !== null ? policy.slowWhenHidden : 1",
        "policy.slowWhenHidden !== null ? 1 : 1",
    ),
    mutant(
        "semantics 7",
        "hidden always stops",
        "reducer",
        "const slows = policy.slowWhenHidden !== null && ",
        "const slows = false && ",
    ),
    mutant("semantics 8", "stale loops resume all at once", "reducer", "(event.position ?? 0) * STAGGER_S", "0"),
    mutant("semantics 8", "the stagger is 200 ms", "policy", "STAGGER_S = 0.15", "STAGGER_S = 0.2"),
    mutant(
        "mistake 1",
        "a resume restarts the whole interval",
        "reducer",
        'if (due === null || due > now) return [state, "none"];',
        'if (due === null || due > now) return [{ ...state, dueFrom: now }, "none"];',
    ),
    mutant(
        "mistake 4",
        "a resume runs at once, whatever follows",
        "reducer",
        'return [onGrid(policy, moved, now), "none"];',
        'return [begun(onGrid(policy, moved, now), now), "run"];',
    ),
    mutant(
        "mistake 5",
        "a resumed loop has its old deadline beside the new one",
        "reducer",
        "const moved = { ...state, dueFrom: now, delayS: (event.position ?? 0) * STAGGER_S };",
        "const moved = state;",
    ),
];

const ADAPTIVE: Mutant[] = [
    mutant(
        "semantics 9",
        "a change does not make it faster",
        "schedule",
        "state.baseS * adaptive.faster",
        "state.baseS",
    ),
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

const BREAKER: Mutant[] = [
    mutant(
        "semantics 10",
        "it opens one failure late",
        "breaker",
        "failures >= policy.failures",
        "failures > policy.failures",
    ),
    mutant(
        "semantics 10",
        "it never opens",
        "breaker",
        "openedAt: opens ? now : breaker.openedAt",
        "openedAt: breaker.openedAt",
    ),
    mutant(
        "semantics 10",
        "a failed probe keeps the old cooldown",
        "breaker",
        ": breaker.probeAt !== null;",
        ": false;",
    ),
    mutant(
        "semantics 10",
        "the backoff decides while it is open",
        "reducer",
        "if (policy.breaker === null || state.breaker.openedAt === null) {",
        "if (true) {",
    ),
    mutant(
        "semantics 10",
        "a probe without an answer closes it",
        "reducer",
        "breaker: abandoned(state.breaker)",
        "breaker: CLOSED_BREAKER",
    ),
    mutant(
        "semantics 10",
        "a success leaves it open",
        "reducer",
        "    notBefore: null,\n    breaker: CLOSED_BREAKER,\n    lastCompleted",
        "    notBefore: null,\n    lastCompleted",
    ),
];

const LIFECYCLE: Mutant[] = [
    mutant(
        "semantics 11",
        "a start restarts a loop that runs",
        "reducer",
        'if (state.life === "live" || state.life === "stopped") return',
        "if (false) return",
    ),
    mutant("semantics 11", "a close does not cancel", "reducer", 'state.inFlight ? "cancel" : "none"', '"none"'),
    mutant("semantics 11", "a reset keeps the failures", "reducer", "state.life,\n    failures: 0,", "state.life,"),
    mutant(
        "semantics 11",
        "a closed loop keeps its deadline",
        "reducer",
        'life: "closed", dueFrom: null',
        "dueFrom: null",
    ),
    mutant(
        "semantics 12",
        "a loop under way is shown as waiting",
        "state",
        'if (state.inFlight) return "running";',
        "",
    ),
    mutant(
        "mistake 2",
        "a late result of another generation counts",
        "reducer",
        "event.generation !== state.generation || state.life",
        "state.life",
    ),
    mutant(
        "mistake 2",
        "a result of another run counts",
        "reducer",
        "if (!before.inFlight || event.run !== before.inFlight)",
        "if (!before.inFlight)",
    ),
    mutant(
        "mistake 3",
        "a result after the close sets a deadline",
        "reducer",
        '|| state.life === "closed") {\n    state =',
        ") {\n    state =",
    ),
    mutant(
        "edge: re-register during a run",
        "a replaced loop keeps its generation",
        "reducer",
        "  return heldAs(policy, {\n    ...state,\n    generation: state.generation + 1,",
        '  return heldAs(policy, {\n    ...state,\n    generation: state.generation + (state.life === "live" ? 0 : 1),',
    ),
    mutant(
        "edge: reset during a run",
        "a reset during a run sets a deadline",
        "reducer",
        'if (fresh.life !== "live" || fresh.inFlight) return',
        'if (fresh.life !== "live") return',
    ),
    mutant(
        "edge: Stop during a run",
        "a follow-up runs although the loop has stopped",
        "reducer",
        'if (state.life !== "live") return "stopped";',
        "",
    ),
];

const PUSH: Mutant[] = [
    mutant(
        "push with polling as the fallback",
        "a live push does not slow polling",
        "schedule",
        "state.pushAlive && policy.safetyEveryS !== null ? policy.safetyEveryS : state.baseS",
        "state.baseS",
    ),
    mutant(
        "push with polling as the fallback",
        "connecting does not look once",
        "reducer",
        "{ ...offGrid(policy, alive, now), dueFrom: now, delayS: 0 }",
        "alive",
    ),
    mutant(
        "push with polling as the fallback",
        "connecting ends a backoff",
        "reducer",
        'if (state.failures) return [alive, "none"];',
        "",
    ),
    mutant(
        "push with polling as the fallback",
        "losing it leaves the long interval",
        "reducer",
        '[{ ...offGrid(policy, alone, due), dueFrom, delayS }, "none"]',
        '[alone, "none"]',
    ),
    mutant(
        "push with polling as the fallback",
        "losing what was not connected moves the deadline",
        "reducer",
        'if (!state.pushAlive) return [state, "none"];',
        "",
    ),
];

const MUTANTS = [
    ...OUTCOMES,
    ...TIME,
    ...BACKOFF,
    ...JITTER,
    ...SKIPS,
    ...TRIGGERS,
    ...PAUSES,
    ...ADAPTIVE,
    ...BREAKER,
    ...LIFECYCLE,
    ...PUSH,
];
const cases = readCases();

test("the implementation that is not changed passes every vector", async () => {
    const implementation = await implementationWith(
        "policy",
        mutated("policy", "DEFAULT_CAP = 8;", "DEFAULT_CAP = 8; "),
    );
    assert.equal(firstDifference(implementation, cases), null);
});

test("each rule that has a vector has a mutant", () => {
    const rules = new Set(cases.map((one) => one.rule));
    const mutants = new Set(MUTANTS.map((one) => one.rule));
    assert.deepEqual([...rules].filter((rule) => !mutants.has(rule)).sort(), []);
    assert.deepEqual([...mutants].filter((rule) => !rules.has(rule)).sort(), []);
});

for (const one of MUTANTS) {
    test(`a vector notices where ${one.does} (${one.rule})`, async () => {
        const implementation = await implementationWith(one.module, mutated(one.module, one.from, one.to));
        assert.notEqual(firstDifference(implementation, cases), null, "every vector passes: the mutant has survived");
    });
}
