/** Loops rest while the page is hidden: at once when it hides, 300 ms after it is shown, in order of their intervals. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { followPage } from "../index.ts";
import type { PageOptions } from "../index.ts";
import { Stage } from "./stage.ts";

class Page extends EventTarget {
  readonly document = Object.assign(new EventTarget(), { visibilityState: "visible" as DocumentVisibilityState });

  becomes(state: DocumentVisibilityState): void {
    this.document.visibilityState = state;
    this.document.dispatchEvent(new Event("visibilitychange"));
  }
}

function onPage(stage: Stage, options: PageOptions = {}): { page: Page; unfollow: () => void } {
  const page = new Page();
  return { page, unfollow: followPage(stage.loops, { window: page, clock: stage.clock, ...options }) };
}

function counting(
  stage: Stage,
  name: string,
  every: "5s" | "10s" | "60s",
  whenHidden: "stop" | number = "stop",
): number[] {
  const runs: number[] = [];
  stage.loops.add(name, () => void runs.push(stage.clock.now()), { every, jitter: 0, whenHidden });
  return runs;
}

test("a hidden page runs nothing and sets no timer", async () => {
  const stage = new Stage();
  const runs = counting(stage, "prices", "10s");
  const { page } = onPage(stage);
  page.becomes("hidden");
  await stage.clock.advance(3600);
  assert.deepEqual([runs, stage.clock.timers], [[], 0]);
});

test("a page that was hidden from the start runs nothing until it is shown", async () => {
  const stage = new Stage();
  const runs = counting(stage, "prices", "10s");
  const page = new Page();
  page.document.visibilityState = "hidden";
  followPage(stage.loops, { window: page, clock: stage.clock });
  await stage.clock.advance(20);
  page.becomes("visible");
  await stage.clock.advance(0.3);
  assert.deepEqual(runs, [20.3]);
});

test("a shown page counts as shown after 300 ms, so that switching through tabs starts nothing", async () => {
  const stage = new Stage();
  const runs = counting(stage, "prices", "10s");
  const { page } = onPage(stage);
  page.becomes("hidden");
  await stage.clock.advance(20);
  for (let glance = 0; glance < 5; glance += 1) {
    page.becomes("visible");
    await stage.clock.advance(0.2);
    page.becomes("hidden");
    await stage.clock.advance(0.2);
  }
  assert.deepEqual(runs, []);
  page.becomes("visible");
  await stage.clock.advance(0.29);
  assert.deepEqual(runs, []);
  await stage.clock.advance(0.01);
  assert.deepEqual(runs, [22.3]);
});

test("stale loops resume 150 ms apart, shortest interval first; the others keep their time", async () => {
  const stage = new Stage();
  const slow = counting(stage, "slow", "60s");
  const second = counting(stage, "second", "10s");
  const first = counting(stage, "first", "5s");
  const { page } = onPage(stage);
  page.becomes("hidden");
  await stage.clock.advance(30);
  page.becomes("visible");
  await stage.clock.advance(0.46);
  assert.deepEqual([first, second, slow], [[30.3], [30.45], []]);
  await stage.clock.advance(60 - 30.46);
  assert.deepEqual(slow, [60]);
});

test("hidden for 5 s every 50 s, a loop of 60 s still runs when its time is over", async () => {
  const stage = new Stage();
  const runs = counting(stage, "prices", "60s");
  const { page } = onPage(stage);
  for (let round = 0; round < 5; round += 1) {
    await stage.clock.advance(45);
    page.becomes("hidden");
    await stage.clock.advance(5);
    page.becomes("visible");
  }
  assert.deepEqual(runs, [60, 120, 180, 240]);
});

test("hidden again during the stagger, a loop does not run", async () => {
  const stage = new Stage();
  const first = counting(stage, "first", "5s");
  const second = counting(stage, "second", "10s");
  const { page } = onPage(stage);
  page.becomes("hidden");
  await stage.clock.advance(30);
  page.becomes("visible");
  await stage.clock.advance(0.4);
  page.becomes("hidden");
  await stage.clock.advance(60);
  assert.deepEqual([first, second], [[30.3], []]);
});

test("a loop may go on slower while it is hidden", async () => {
  const stage = new Stage();
  const runs = counting(stage, "prices", "10s", 6);
  onPage(stage).page.becomes("hidden");
  await stage.clock.advance(120);
  assert.deepEqual(runs, [60, 120]);
});

test("pagehide and freeze count as hidden, and streams are closed and opened with it", async () => {
  for (const leaves of [
    (page: Page) => page.dispatchEvent(new Event("pagehide")),
    (page: Page) => page.document.dispatchEvent(new Event("freeze")),
  ]) {
    const stage = new Stage();
    const called: string[] = [];
    const runs = counting(stage, "prices", "10s");
    const { page } = onPage(stage, { onHidden: () => called.push("hidden"), onShown: () => called.push("shown") });
    leaves(page);
    page.becomes("hidden");
    assert.deepEqual(called, ["hidden"]);
    await stage.clock.advance(20);
    page.document.visibilityState = "visible";
    page.dispatchEvent(new Event("pageshow"));
    page.becomes("visible");
    await stage.clock.advance(0.3);
    assert.deepEqual([called, runs], [["hidden", "shown"], [20.3]]);
  }
});

test("once it is no longer followed, the page decides nothing", async () => {
  const stage = new Stage();
  const runs = counting(stage, "prices", "10s");
  const { page, unfollow } = onPage(stage);
  page.becomes("hidden");
  unfollow();
  page.becomes("hidden");
  await stage.clock.advance(10);
  assert.deepEqual(runs, [10]);
});
