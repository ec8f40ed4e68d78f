/** The conformance vectors, as both implementations read them, and the one way to run a case. */

import { readdirSync, readFileSync } from "node:fs";

const FOLDER = new URL("../../../../conformance/loops/", import.meta.url);
const TOLERANCE = 1e-9;

type Json = Record<string, unknown>;

export interface Case {
  readonly file: string;
  readonly name: string;
  readonly rule: string;
  readonly policy: Json;
  readonly given?: Json;
  readonly steps: readonly {
    readonly at: number;
    readonly event: Json;
    readonly chance?: number;
    readonly policy?: Json;
    readonly expect: Json;
  }[];
}

/** What a case needs of an implementation; mutants are others. */
export interface Implementation {
  readonly DEFAULTS: object;
  readonly initial: (policy: never) => object;
  readonly reduce: (
    policy: never,
    state: never,
    event: never,
    now: number,
    chance: number,
  ) => readonly [object, string];
  readonly phaseOf: (state: never) => string;
  readonly nextDueOf: (state: never) => number | null;
  readonly skipsOf: (state: never) => Record<string, number>;
}

export function readCases(): Case[] {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
  return files.sort().flatMap((file) => {
    const cases = JSON.parse(readFileSync(new URL(file, FOLDER), "utf-8")) as Omit<Case, "file">[];
    return cases.map((one) => ({ ...one, file }));
  });
}

/** Run one case. Return what differs, in one line, or null. */
export function differenceOf(implementation: Implementation, vector: Case): string | null {
  let policy = policyOf(implementation, vector.policy);
  let state: object = { ...implementation.initial(policy as never), ...(camel(vector.given ?? {}) as object) };
  for (const [index, step] of vector.steps.entries()) {
    if (step.policy !== undefined) policy = policyOf(implementation, step.policy);
    const event = withOutcome(camel(step.event) as Json);
    const [after, effect] = implementation.reduce(
      policy as never,
      state as never,
      event as never,
      step.at,
      step.chance ?? 0.5,
    );
    state = after;
    const seen: Json = {
      ...after,
      effect,
      phase: implementation.phaseOf(after as never),
      nextDue: implementation.nextDueOf(after as never),
      skips: implementation.skipsOf(after as never),
    };
    for (const [field, expected] of Object.entries(step.expect)) {
      const actual = seen[camelWord(field)];
      if (!same(actual, camel(expected))) {
        const where = `${vector.file}, "${vector.name}", step ${index + 1} at ${step.at} s (${vector.rule})`;
        return `${where}: ${field} is ${JSON.stringify(actual)}, should be ${JSON.stringify(expected)}`;
      }
    }
  }
  return null;
}

function policyOf(implementation: Implementation, written: Json): object {
  return { ...implementation.DEFAULTS, ...(camel(written) as object) };
}

function withOutcome(event: Json): Json {
  if (event["outcome"] === undefined) return event;
  return { ...event, outcome: { reason: null, delayS: 0, changed: null, ...(event["outcome"] as object) } };
}

/** The vectors write snake case, this implementation camel case. */
function camel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camel);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [camelWord(key), camel(one)]));
}

function camelWord(word: string): string {
  return word.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function same(actual: unknown, expected: unknown): boolean {
  if (typeof actual === "number" && typeof expected === "number") {
    // Within 1e-9 of infinity lies every number.
    if (!Number.isFinite(actual) || !Number.isFinite(expected)) return actual === expected;
    const largest = Math.max(Math.abs(actual), Math.abs(expected));
    return Math.abs(actual - expected) <= Math.max(TOLERANCE * largest, TOLERANCE);
  }
  if (actual !== null && expected !== null && typeof actual === "object" && typeof expected === "object") {
    const [one, other] = [actual as Json, expected as Json];
    const keys = Object.keys(other);
    return Object.keys(one).length === keys.length && keys.every((key) => key in one && same(one[key], other[key]));
  }
  return actual === expected;
}
