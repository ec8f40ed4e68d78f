/** Runs the cases of a file, in the format of the vectors, and prints what differs. For the tests in Python. */

import { readFileSync } from "node:fs";

import { DEFAULTS } from "../policy.ts";
import { reduce } from "../reducer.ts";
import { initial, nextDueOf, phaseOf, skipsOf } from "../state.ts";
import type { Case } from "./vectors.ts";
import { differenceOf } from "./vectors.ts";

const cases = JSON.parse(readFileSync(process.argv[2] ?? "", "utf-8")) as Case[];
const implementation = { DEFAULTS, initial, nextDueOf, phaseOf, reduce, skipsOf };
const differences = cases.map((one) => differenceOf(implementation, one)).filter((one) => one !== null);
for (const difference of differences) console.log(difference);
console.log(`${cases.length} cases, ${differences.length} differ`);
process.exitCode = differences.length > 0 ? 1 : 0;
