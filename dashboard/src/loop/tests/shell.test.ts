/** The shell keeps the reducer's promises with real functions: one timer, no overlap, no lost answer. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { BadInput, failed, ok, snooze, stop } from "../index.ts";
import type { LoopOptions, Outcome } from "../index.ts";
import { Held, Stage } from "./stage.ts";

const EVERY: LoopOptions = { every: "10s", jitter: 0 };

/** A loop whose function answers with these values, one a run, the last one for ever. */
function answering(stage: Stage, results: unknown[], options: LoopOptions = EVERY) {
  const runs: number[] = [];
  const loop = stage.loops.add(
    "prices",
    async () => {
      runs.push(stage.clock.now());
      const result = results[Math.min(runs.length, results.length) - 1];
      if (result instanceof Error) throw result;
      return result as undefined;
    },
    options,
  );
  return { loop, runs };
}

test("runs one interval apart, counted from the end of a run", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  stage.loops.add("prices", held.call, EVERY);
  await stage.clock.advance(14);
  await held.end();
  await stage.clock.advance(10);
  assert.deepEqual(held.started, [10, 24]);
});

test("outcomes are judged by identity", async () => {
  const stage = new Stage();
  const { loop } = answering(stage, [undefined, null, true, false, new TypeError("gone"), failed("busy"), ok(1)]);
  const seen: string[] = [];
  for (let run = 0; run < 7; run += 1) {
    const outcome = await loop.trigger();
    seen.push(`${outcome.kind} ${outcome.reason}`);
  }
  const failures = ["failed returned false", "failed TypeError: gone", "failed busy"];
  assert.deepEqual(seen, ["ok null", "ok null", "ok null", ...failures, "ok null"]);
});

test("a value that has no meaning is a success with one warning", async () => {
  const stage = new Stage();
  const { loop } = answering(stage, [0]);
  assert.equal((await loop.trigger()).kind, "ok");
  assert.equal((await loop.trigger()).kind, "ok");
  assert.equal(stage.logged.length, 1);
  assert.match(stage.logged[0] ?? "", /"prices" returned a number/);
});

test("failures back off, a success ends it", async () => {
  const stage = new Stage();
  const { runs } = answering(stage, [false, false, true]);
  await stage.clock.advance(100);
  assert.deepEqual(runs, [10, 30, 70, 80, 90, 100]);
});

test("Retry-After is a floor that the cap does not clip", async () => {
  const stage = new Stage();
  const { runs } = answering(stage, [failed("429", "300"), true], { ...EVERY, cap: 1 });
  await stage.clock.advance(400);
  assert.deepEqual(runs.slice(0, 2), [10, 310]);
});

test("a snooze chooses the next delay, a stop ends the loop until a reset", async () => {
  const stage = new Stage();
  const { loop, runs } = answering(stage, [snooze("3s"), stop("sold out"), true]);
  await stage.clock.advance(100);
  assert.deepEqual(runs, [10, 13]);
  assert.equal(loop.state.phase, "stopped");
  assert.equal(loop.state.stopReason, "sold out");
  loop.reset();
  await stage.clock.advance(10);
  assert.deepEqual(runs, [10, 13, 110]);
});

test("a timer that fires early is set again, and a delay beyond 24 days takes several timers", async () => {
  const stage = new Stage();
  const { runs } = answering(stage, [true], { ...EVERY, every: "60d" });
  const delays: number[] = [];
  const { timer } = stage.clock;
  stage.clock.timer = (callback, delayMs) => {
    delays.push(delayMs);
    return timer.call(stage.clock, callback, delayMs);
  };
  await stage.clock.advance(60 * 86_400);
  assert.deepEqual(runs, [60 * 86_400]);
  assert.ok(Math.max(...delays) < 2 ** 31);
});

test("100 triggers during one run become one run, and all get its answer", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  const loop = stage.loops.add("prices", held.call, EVERY);
  const first = loop.trigger();
  await stage.clock.advance(1);
  const others = Array.from({ length: 100 }, () => loop.trigger());
  await held.end(true);
  assert.equal((await first).kind, "ok");
  assert.deepEqual(held.started, [0, 1]);
  await held.end(false);
  assert.deepEqual(new Set((await Promise.all(others)).map((one) => one.kind)), new Set(["failed"]));
  await stage.clock.advance(1);
  assert.equal(held.started.length, 2);
});

test("a trigger moves the one deadline", async () => {
  const stage = new Stage();
  const { loop, runs } = answering(stage, [true]);
  await stage.clock.advance(9);
  await loop.trigger();
  await stage.clock.advance(10);
  assert.deepEqual(runs, [9, 19]);
  assert.equal(stage.clock.timers, 1);
});

test("a loop that an operator paused skips triggers unless they are forced", async () => {
  const stage = new Stage();
  const { loop, runs } = answering(stage, [true]);
  loop.pause();
  assert.deepEqual(await loop.trigger(), { kind: "skipped", reason: "paused", delayS: 0, changed: null });
  assert.equal((await loop.trigger({ force: true })).kind, "ok");
  await stage.clock.advance(100);
  assert.deepEqual(runs, [0]);
  assert.equal(stage.clock.timers, 0);
});

test("a follow-up that was paused away answers its triggers", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  const loop = stage.loops.add("prices", held.call, EVERY);
  void loop.trigger();
  await stage.clock.advance(0);
  const second = loop.trigger();
  loop.pause();
  await held.end();
  assert.equal((await second).kind, "skipped");
});

test("registering a name again during a failing run leaves one timer, and drops the late result", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  stage.loops.add("prices", held.call, EVERY);
  await stage.clock.advance(10);
  let runs = 0;
  const loop = stage.loops.replace("prices", () => void (runs += 1), { every: "1s", jitter: 0 });
  await held.end(false);
  assert.equal(loop.state.failures, 0);
  await stage.clock.advance(10);
  assert.equal(runs, 10);
  assert.equal(stage.clock.timers, 1);
});

test("a name that is taken is replaced with a warning", () => {
  const stage = new Stage();
  stage.loops.add("prices", () => true, EVERY);
  stage.loops.add("prices", () => true, EVERY);
  assert.match(stage.logged.join("\n"), /"prices" is registered already/);
  assert.equal(stage.loops.size, 1);
});

test("a condition that is false skips, one that throws is a failure", async () => {
  const stage = new Stage();
  const answers: (() => boolean | Promise<boolean>)[] = [
    () => false,
    async () => false,
    () => {
      throw new Error("no session");
    },
    async () => {
      throw new Error("no session");
    },
    async () => true,
  ];
  let asked = 0;
  const { loop, runs } = answering(stage, [true], {
    ...EVERY,
    cap: 1,
    when: () => answers[Math.min(asked++, answers.length - 1)]!(),
  });
  await stage.clock.advance(20);
  assert.deepEqual([loop.state.skips, loop.state.failures, loop.state.runs], [{ condition: 2 }, 0, 0]);
  await stage.clock.advance(20);
  assert.equal(loop.state.failures, 2);
  assert.equal(loop.state.lastError, "condition: Error: no session");
  await stage.clock.advance(10);
  assert.deepEqual(runs, [50]);
});

test("a timeout aborts the signal and fails; no run begins before the function has returned", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  const outcomes: Outcome[] = [];
  const loop = stage.loops.add("prices", held.call, {
    ...EVERY,
    timeout: "5s",
    onOutcome: (one) => outcomes.push(one),
  });
  await stage.clock.advance(15);
  assert.equal(held.signals[0]?.aborted, true);
  assert.deepEqual([loop.state.failures, loop.state.overran, loop.state.phase], [1, true, "running"]);
  await stage.clock.advance(100);
  assert.equal(held.started.length, 1);
  assert.match(stage.logged.join("\n"), /goes on after its timeout/);
  await held.end("too late");
  assert.deepEqual([loop.state.failures, loop.state.nextDue], [1, 135]);
  assert.deepEqual(
    outcomes.map((one) => one.reason),
    ["timeout"],
  );
});

test("a function that heeds its signal is not complained about", async () => {
  const stage = new Stage();
  const fetchLike = (signal: AbortSignal): Promise<void> =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
  const loop = stage.loops.add("prices", fetchLike, { ...EVERY, timeout: "5s" });
  const answer = loop.trigger();
  await stage.clock.advance(10);
  assert.equal((await answer).reason, "timeout");
  assert.deepEqual(stage.logged, []);
  assert.equal(loop.state.nextDue, 25);
});

test("an AbortError that the function throws by itself is not counted", async () => {
  const stage = new Stage();
  const { loop } = answering(stage, [new DOMException("left the view", "AbortError")]);
  assert.equal((await loop.trigger()).kind, "canceled");
  assert.equal(loop.state.failures, 0);
  assert.equal(loop.state.nextDue, 10);
});

test("hooks and subscribers that throw change nothing", async () => {
  const stage = new Stage();
  const bad = (): never => {
    throw new Error("hook");
  };
  const { loop, runs } = answering(stage, [true], { ...EVERY, onOutcome: bad });
  let isFirst = true;
  loop.subscribe(() => {
    if (!isFirst) bad();
    isFirst = false;
  });
  await stage.clock.advance(20);
  assert.deepEqual(runs, [10, 20]);
  assert.match(stage.logged.join("\n"), /onOutcome threw/);
  assert.match(stage.logged.join("\n"), /a subscriber threw/);
});

test("a subscriber sees the state now and after every change, until it ends that", async () => {
  const stage = new Stage();
  const { loop } = answering(stage, [true]);
  const phases: string[] = [];
  const unsubscribe = loop.subscribe((state) => phases.push(state.phase));
  await loop.trigger();
  unsubscribe();
  await loop.trigger();
  assert.deepEqual(phases, ["waiting", "running", "waiting"]);
  assert.ok(Object.isFrozen(loop.state));
});

test("an adaptive interval follows how often the value changes", async () => {
  const stage = new Stage();
  const options: LoopOptions = { ...EVERY, adaptive: { minimum: "5s", maximum: "20s", patience: 2 } };
  const { loop } = answering(stage, [ok({ n: 1 }), ok({ n: 2 }), ok({ n: 2 }), ok({ n: 2 })], options);
  const bases: number[] = [];
  for (let run = 0; run < 4; run += 1) {
    await loop.trigger();
    bases.push(loop.state.baseS);
  }
  assert.deepEqual(bases, [10, 5, 5, 7.5]);
});

test("a live push makes polling the safety net, a lost one brings it back", async () => {
  const stage = new Stage();
  const { loop, runs } = answering(stage, [true], { ...EVERY, safetyEvery: "60s" });
  loop.pushConnected();
  await stage.clock.advance(61);
  loop.pushLost();
  await stage.clock.advance(10);
  assert.deepEqual(runs, [0, 60, 70]);
});

test("close aborts what runs, answers every caller and leaves no timer; a start begins anew", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  const loop = stage.loops.add("prices", held.call, EVERY);
  const first = loop.trigger();
  await stage.clock.advance(0);
  const second = loop.trigger();
  const closed = stage.loops.close();
  assert.equal(held.signals[0]?.aborted, true);
  assert.deepEqual([(await first).kind, (await second).kind], ["canceled", "canceled"]);
  await held.end();
  await closed;
  await stage.loops.close();
  assert.deepEqual([stage.clock.timers, loop.state.phase], [0, "closed"]);
  assert.equal((await loop.trigger()).reason, "closed");
  stage.loops.start();
  await stage.clock.advance(10);
  assert.equal(held.started.length, 2);
});

test("close is bounded, whatever a function does", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  stage.loops.add("prices", held.call, EVERY);
  await stage.clock.advance(10);
  let isClosed = false;
  void stage.loops.close("3s").then(() => (isClosed = true));
  await stage.clock.advance(3.5);
  assert.deepEqual([held.signals[0]?.aborted, isClosed], [true, false]);
  await stage.clock.advance(0.5);
  assert.equal(isClosed, true);
  assert.match(stage.logged.join("\n"), /"prices" does not end/);
});

test("a start during a close with grace begins when the close is over", async () => {
  const stage = new Stage();
  const held = new Held(stage.clock);
  const loop = stage.loops.add("prices", held.call, EVERY);
  await stage.clock.advance(10);
  const closed = stage.loops.close("60s");
  stage.loops.start();
  await held.end();
  await closed;
  await stage.clock.advance(0);
  assert.equal(loop.state.phase, "waiting");
});

test("a removed loop runs no more, and its name is free", async () => {
  const stage = new Stage();
  const { loop, runs } = answering(stage, [true]);
  await loop.close();
  await stage.clock.advance(60);
  assert.deepEqual([runs, stage.loops.size, stage.clock.timers], [[], 0, 0]);
  answering(stage, [true]);
  assert.deepEqual(stage.logged, []);
});

test("1,000 pauses and resumes leave one timer and one run", async () => {
  const stage = new Stage();
  const { loop, runs } = answering(stage, [true]);
  for (let cycle = 0; cycle < 1000; cycle += 1) {
    stage.loops.pause("hidden");
    stage.loops.resume("hidden");
  }
  await stage.clock.advance(10);
  assert.deepEqual([runs, stage.clock.timers, loop.state.phase], [[10], 1, "waiting"]);
});

test("bad options are refused in a message that names the loop and the option", () => {
  const { loops } = new Stage();
  const refused = (options: LoopOptions, message: RegExp): void => {
    assert.throws(() => loops.add("prices", () => true, options), { name: "BadInput", message });
  };
  refused({ every: "0s" }, /loop "prices": every/);
  refused({ every: "-1s" }, /is not a duration/);
  refused({ every: 30_000 as never }, /30000 is not a duration; write "500ms"/);
  refused({ ...EVERY, cap: 0.5 }, /cap: 0.5: write a number 1 or more/);
  refused({ ...EVERY, jitter: 2 }, /jitter: 2: write a number between 0 and 1/);
  refused({ ...EVERY, jitter: Number.NaN }, /jitter: NaN/);
  refused({ ...EVERY, timeout: "0s" }, /timeout: 0 is not possible/);
  refused({ ...EVERY, whenHidden: 0.5 }, /whenHidden/);
  refused({ ...EVERY, safetyEvery: "5s" }, /safetyEvery: 5s is shorter/);
  refused({ ...EVERY, adaptive: { minimum: "20s", maximum: "30s" } }, /every must lie between/);
  refused({ ...EVERY, breaker: { failures: 0, cooldown: "1m" } }, /breaker.failures/);
  assert.throws(() => loops.add("", () => true, EVERY), BadInput);
});
