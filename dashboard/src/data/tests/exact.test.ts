/** Integers that a JavaScript number cannot hold are read, shown and written as they are. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { exactText, parseExact } from "../exact.ts";
import { asCommand, asPython } from "../job_story.ts";
import type { JobDetail } from "../shapes.ts";
import { pythonText, shellWord } from "../text.ts";

const TEXTS = [
  "9007199254740993",
  "-9007199254740993",
  '{"id":9007199254740993,"other":[18446744073709551616,1,1.5],"text":"9007199254740993 \\"9007199254740995\\""}',
  '{"9007199254740993":null}',
  "1234567890123456.5",
  "12345678901234567890e3",
  "0.12345678901234567",
  "[]",
];

for (const text of TEXTS) {
  test(text, () => {
    const again = exactText(parseExact(text));
    assert.equal(again, /\d[.e]\d/.test(text) && !text.includes("{") ? JSON.stringify(JSON.parse(text)) : text);
  });
}

test("a number stays a number in Python and in a shell", () => {
  const job = { name: "audit", args: [parseExact("9007199254740993")], kwargs: { note: "9007199254740995" } } as unknown as JobDetail;
  assert.equal(asPython(job, pythonText), 'await app.jobs["audit"].enqueue(9007199254740993, note="9007199254740995")');
  assert.match(asCommand(job, "http://x/api/jobs", shellWord), /"args":\[9007199254740993\],"kwargs":\{"note":"9007199254740995"\}/);
});
