/** What a run has seen, look by look, and how long its budget lasts. Pure. */

import type { Decision, Pause, RunDetail, RunItem } from "./shapes.ts";
import type { Tone } from "./status.ts";
import { ms } from "./times.ts";

/** One entry of the run's log: a look, equal looks in a row, or a step that is not a look. */
export interface Stretch {
  /** The first and the last look; null: it was not a look. */
  first: number | null;
  last: number | null;
  times: number;
  fromMs: number;
  atMs: number;
  rule: string;
  why: string;
  nextS: number | null;
  /** How long the last look took. */
  tookS: number | null;
  status: string | null;
  facts: Record<string, unknown>;
  /** What it changed: facts, and what the remote says where the look before said another word. */
  changes: [string, unknown][];
  tone: Tone;
}

const ENDS: Record<string, Tone> = { ready: "ok", failed: "fail", timed_out: "fail", canceled: "idle" };

/** Return the word for where a run is. */
export function runWord(run: RunItem): string {
  if (run.outcome !== null) return run.phase === "cleaning" ? "cleaning" : run.outcome;
  if (run.cancel_requested || run.phase === "canceling") return "canceling";
  if (run.phase === "needs_code") return "needs_code";
  if (run.paused !== null) return "paused";
  if (run.state === "running") return "looking";
  return "waiting";
}

/** Return "paused by ann: the reason". */
export function pauseText({ by, reason }: Pause): string {
  return `paused by ${by || "an operator"}${reason === "" ? "" : `: ${reason}`}`;
}

/** Return the log as stretches of looks: entries of the API have the number of their last look. */
export function stretches(run: RunDetail): Stretch[] {
  let status: string | null = null;
  return run.log.map((one) => {
    const last = one.look ?? null;
    const made = stretch(one, last === null ? null : Math.max(1, last - (one.times ?? 1) + 1), last);
    if (made.status !== null && made.status !== status) made.changes.push(["status", made.status]);
    status = made.status;
    return made;
  });
}

/** Return a fact's value as text. */
export const shortValue = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

function stretch(one: Decision, first: number | null, last: number | null): Stretch {
  const facts = one.facts ?? {};
  return {
    first,
    last,
    times: one.times ?? 1,
    fromMs: (one.first_at ?? one.at) * 1000,
    atMs: one.at * 1000,
    rule: one.rule,
    why: one.why,
    nextS: one.next_s ?? null,
    tookS: one.took_s ?? null,
    status: one.status ?? null,
    facts,
    changes: Object.entries(facts),
    tone: ENDS[one.rule] ?? (one.rule === "error" || one.rule === "breaker" || "error" in facts ? "warn" : Object.keys(facts).length > 0 ? "active" : "idle"),
  };
}

/** Return "look 7", "looks 2–39", or the name of a step that was not a look. */
export function stretchName(one: Stretch): string {
  if (one.first === null || one.last === null) return one.rule.replaceAll("_", " ");
  return one.first === one.last ? `look ${one.last}` : `looks ${one.first}–${one.last}`;
}

/** Return the stretch that a look belongs to. */
export function stretchOf(all: Stretch[], look: number): Stretch | null {
  return all.find((one) => one.first !== null && one.last !== null && one.first <= look && look <= one.last) ?? null;
}

export interface SeenFact {
  name: string;
  value: unknown;
  /** The look that changed it; null: one before the log begins. */
  since: number | null;
  isNew: boolean;
}

/** Return the facts as they were behind a look: the last change up to there. */
export function factsAt(run: RunDetail, all: Stretch[], look: number): SeenFact[] {
  const found = new Map<string, SeenFact>();
  const changed = new Set(all.flatMap((one) => Object.keys(one.facts)));
  for (const [name, value] of Object.entries(run.facts)) {
    if (!changed.has(name)) found.set(name, { name, value, since: null, isNew: false });
  }
  let status: string | null = null;
  for (const one of all) {
    if (one.first !== null && one.first > look) break;
    const isNew = one.first !== null && one.first <= look && look <= (one.last ?? 0);
    for (const [name, value] of Object.entries(one.facts)) found.set(name, { name, value, since: one.first, isNew });
    if (one.status !== null && one.status !== status) {
      found.set("status", { name: "status", value: one.status, since: one.first, isNew });
      status = one.status;
    }
  }
  return [...found.values()].sort((one, other) => one.name.localeCompare(other.name));
}

export interface Budget {
  usedS: number | null;
  /** When the looks are used up at the present pace; null: not before the end, or unknown. */
  looksEndMs: number | null;
  says: string;
}

/** Return how much of the budget is used, and what ends first at the present pace. */
export function budget(run: RunDetail, nowMs: number, span: (seconds: number) => string): Budget {
  const usedS = usedTime(run, nowMs);
  if (run.outcome !== null) return { usedS, looksEndMs: null, says: "" };
  const wait = run.log.at(-1)?.next_s ?? null;
  const left = run.budget_looks === null ? null : Math.max(0, run.budget_looks - run.looks);
  const nextMs = run.next_look_at === null ? nowMs : Math.max(nowMs, ms(run.next_look_at));
  const looksEndMs = left === null || wait === null ? null : left === 0 ? nowMs : nextMs + (left - 1) * wait * 1000;
  const endMs = run.deadline_at === null ? null : ms(run.deadline_at);
  return { usedS, looksEndMs, says: projected(nowMs, looksEndMs, endMs, span) };
}

function projected(nowMs: number, looksEndMs: number | null, endMs: number | null, span: (seconds: number) => string): string {
  const until = (instant: number): string => (instant <= nowMs ? "now" : `in ${span((instant - nowMs) / 1000)}`);
  if (looksEndMs !== null && (endMs === null || looksEndMs < endMs)) return `At this pace its looks are used up ${until(looksEndMs)}.`;
  if (endMs !== null) return `Its time is over ${until(endMs)}${looksEndMs === null ? "" : ", before its looks are"}.`;
  return "";
}

function usedTime(run: RunItem, nowMs: number): number | null {
  if (run.elapsed_s !== null) return run.elapsed_s;
  if (run.budget_s === null || run.deadline_at === null) return null;
  return Math.max(0, run.budget_s - (ms(run.deadline_at) - nowMs) / 1000);
}
