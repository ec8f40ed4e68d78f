/** What an implementation could do wrong about triggers, pauses, the breaker, the lifecycle and push. */

import type { Mutant } from "./mutation.ts";
import { mutant } from "./mutation.ts";

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
    "a trigger is not a probe",
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
  mutant("semantics 10", "a failed probe keeps the old cooldown", "breaker", ": breaker.probeAt !== null;", ": false;"),
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
  mutant("semantics 12", "a loop under way is shown as waiting", "state", 'if (state.inFlight) return "running";', ""),
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
    "the safety interval holds without push, too",
    "schedule",
    "state.pushAlive && policy.safetyEveryS !== null",
    "policy.safetyEveryS !== null",
  ),
  mutant(
    "push with polling as the fallback",
    "push without a safety interval looks all the time",
    "schedule",
    "state.pushAlive && policy.safetyEveryS !== null ? policy.safetyEveryS : state.baseS",
    "state.pushAlive ? (policy.safetyEveryS ?? 0) : state.baseS",
  ),
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

export const MUTANTS_OF_LIFE: readonly Mutant[] = [...TRIGGERS, ...PAUSES, ...BREAKER, ...LIFECYCLE, ...PUSH];
