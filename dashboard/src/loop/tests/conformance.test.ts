/** Every vector of conformance/loops passes here, from the same files that the Python implementation runs. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { DEFAULTS } from "../policy.ts";
import { reduce } from "../reducer.ts";
import { initial, nextDueOf, phaseOf, skipsOf } from "../state.ts";
import { differenceOf, readCases } from "./vectors.ts";

const implementation = { DEFAULTS, initial, nextDueOf, phaseOf, reduce, skipsOf };
const cases = readCases();

test("there are vectors", () => {
  assert.ok(cases.length >= 60, `${cases.length} vectors`);
});

for (const vector of cases) {
  test(`${vector.file}: ${vector.name}`, () => {
    assert.equal(differenceOf(implementation, vector), null);
  });
}
