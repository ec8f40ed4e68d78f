/** The examples of the README run as they stand. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { test } from "node:test";

const README = readFileSync(new URL("../README.md", import.meta.url), "utf-8");
const EXAMPLES = [...README.matchAll(/```ts\n(.*?)```/gs)].map((found) => found[1] ?? "");
const PACKAGE = new URL("../index.ts", import.meta.url).href;

/** What the examples find in a browser. */
class Page extends EventTarget {
  readonly document = Object.assign(new EventTarget(), { visibilityState: "visible" });
}

class FakeEventSource {
  static readonly opened: FakeEventSource[] = [];
  onopen = (): void => undefined;
  isClosed = false;

  constructor() {
    FakeEventSource.opened.push(this);
  }

  close(): void {
    this.isClosed = true;
  }
}

function later<Value>(): { promise: Promise<Value>; resolve: (value: Value) => void } {
  let resolve: (value: Value) => void = () => undefined;
  const promise = new Promise<Value>((give) => {
    resolve = give;
  });
  return { promise, resolve };
}

async function run(example: string): Promise<{ loops: { close(): Promise<void> } }> {
  const script = stripTypeScriptTypes(example).replaceAll('"everpoll-loop"', JSON.stringify(PACKAGE));
  const module = `${script}\nexport { loops };`;
  return (await import(`data:text/javascript;base64,${Buffer.from(module).toString("base64")}`)) as never;
}

test("there are three examples", () => {
  assert.equal(EXAMPLES.length, 3);
});

test("the first one fetches at once and shows the answer", async (context) => {
  const shown = later<unknown>();
  const page = new Page();
  Object.assign(globalThis, { window: page, show: shown.resolve });
  context.mock.method(globalThis, "fetch", () => Promise.resolve(Response.json({ bread: 3 })));
  const { loops } = await run(EXAMPLES[0] ?? "");
  assert.deepEqual(await shown.promise, { bread: 3 });
  await loops.close();
});

test("the second one prints what its comments say", async (context) => {
  const printed: unknown[][] = [];
  Object.assign(globalThis, { loadPrices: () => true });
  context.mock.method(console, "log", (...words: unknown[]) => printed.push(words));
  await run(EXAMPLES[1] ?? "");
  assert.deepEqual(printed, [["ok"], ["paused", 0, null], ["paused"]]);
});

test("the third one looks once when push is connected, and closes the stream with the page", async () => {
  const looked = later<void>();
  const page = new Page();
  Object.assign(globalThis, { window: page, EventSource: FakeEventSource, loadPrices: looked.resolve });
  const { loops } = await run(EXAMPLES[2] ?? "");
  FakeEventSource.opened[0]?.onopen();
  await looked.promise;
  page.dispatchEvent(new Event("pagehide"));
  assert.equal(FakeEventSource.opened[0]?.isClosed, true);
  await loops.close();
});
