/**
 * A mutant of each rule makes a vector fail: the vectors would notice an implementation that forgot the rule.
 *
 * The rules have the names that they have in the vectors.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { MUTANTS_OF_LIFE } from "./mutants_of_life.ts";
import { MUTANTS_OF_RUNS } from "./mutants_of_runs.ts";
import { firstDifference, implementationWith, mutated } from "./mutation.ts";
import { readCases } from "./vectors.ts";

const MUTANTS = [...MUTANTS_OF_RUNS, ...MUTANTS_OF_LIFE];
const cases = readCases();

test("the implementation that is not changed passes every vector", async () => {
  const implementation = await implementationWith("policy", mutated("policy", "DEFAULT_CAP = 8;", "DEFAULT_CAP = 8; "));
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
