/**
 * All loops of one page: names, and starting, pausing and ending together.
 *
 * `close` is idempotent and ends within its grace period and one second. Closed loops can be started again.
 */

import type { Clock, Log } from "./clock.ts";
import { SYSTEM_CLOCK } from "./clock.ts";
import type { Duration } from "./duration.ts";
import { seconds } from "./duration.ts";
import { BadInput } from "./errors.ts";
import { Loop } from "./loop.ts";
import type { LoopOptions } from "./policy.ts";
import { policyOf } from "./policy.ts";
import { isStaleOnceResumed } from "./reducer.ts";
import type { LoopFunction } from "./run.ts";
import type { PauseReason } from "./state.ts";

/** How long an aborted run may take to end before the log names it. */
const ABORT_S = 1;

export interface LoopsOptions {
  readonly clock?: Clock;
  /** Draws the numbers for jitter, from 0 up to 1. Default: Math.random. */
  readonly random?: () => number;
  readonly log?: Log;
}

export class Loops {
  readonly #loops = new Map<string, Loop>();
  /** Closed for good, but a run of theirs has not ended: their names come free when it has. */
  readonly #removed = new Set<Loop>();
  /** Reasons that hold for all loops, those registered later included. */
  readonly #pauses = new Set<PauseReason>();
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #log: Log;
  #isRunning = false;
  #isClosing = false;
  #lastClose: Promise<void> = Promise.resolve();

  constructor(options: LoopsOptions = {}) {
    this.#clock = options.clock ?? SYSTEM_CLOCK;
    this.#random = options.random ?? Math.random;
    this.#log = options.log ?? console;
  }

  get size(): number {
    return this.#loops.size;
  }

  [Symbol.iterator](): IterableIterator<Loop> {
    return this.#loops.values();
  }

  get(name: string): Loop | undefined {
    return this.#loops.get(name);
  }

  /** Register a function. A name that is taken is replaced, with a warning: often it is a mistake. */
  add(name: string, call: LoopFunction, options: LoopOptions): Loop {
    if (this.#loops.has(name)) {
      this.#log.warn(`loop "${name}" is registered already and is replaced now; call replace() if you mean it`);
    }
    return this.replace(name, call, options);
  }

  /** Register a function in the place of any of that name. A run under way ends first, its result is dropped. */
  replace(name: string, call: LoopFunction, options: LoopOptions): Loop {
    if (name === "") throw new BadInput("the name of a loop has at least one character");
    if (typeof call !== "function") throw new BadInput(`loop "${name}": give it a function`);
    const registration = { call, options, policy: policyOf(name, options) };
    let loop = this.#loops.get(name);
    if (loop === undefined) {
      loop = new Loop(name, registration, {
        clock: this.#clock,
        chance: this.#random,
        log: this.#log,
        remove: (of, grace) => this.remove(of, grace),
        ended: (one) => this.#forget(one),
      });
      this.#loops.set(name, loop);
      for (const reason of this.#pauses) loop.tell({ type: "pause", reason });
    }
    this.#removed.delete(loop);
    loop.takeOver(registration);
    if (this.#isRunning) loop.tell({ type: "start" });
    return loop;
  }

  /** Schedule every loop, and from now on each one when it is registered. */
  start(): void {
    if (this.#isClosing) void this.#lastClose.then(() => this.start());
    if (this.#isRunning) return;
    this.#isRunning = true;
    for (const loop of this.#loops.values()) loop.tell({ type: "start" });
  }

  /** Pause every loop for this reason. */
  pause(reason: Exclude<PauseReason, "shutdown"> = "operator"): void {
    this.#pause(reason);
  }

  /** Take this reason away from every loop. The stale ones run 150 ms apart, shortest interval first. */
  resume(reason: Exclude<PauseReason, "shutdown"> = "operator"): void {
    this.#resume(reason);
  }

  /** Close one loop and forget its name. */
  async remove(name: string, grace: Duration = "0s"): Promise<void> {
    const graceS = seconds(grace, "grace");
    const loop = this.#loops.get(name);
    if (loop === undefined) return;
    const { generation } = loop.state;
    this.#removed.add(loop);
    loop.tell({ type: "pause", reason: "shutdown" });
    if (graceS > 0) await this.#within([loop], graceS);
    // Registered again meanwhile: then the name is wanted, and only what it was before is gone.
    if (loop.state.generation === generation) {
      loop.end();
      this.#forget(loop);
      await this.#aborted([loop]);
    }
    if (!this.#pauses.has("shutdown")) loop.tell({ type: "resume", reason: "shutdown" });
  }

  /** End every loop: no new runs, the grace period for those under way, then their signals are aborted. */
  close(grace: Duration = "0s"): Promise<void> {
    const graceS = seconds(grace, "grace");
    if (this.#isRunning && !this.#isClosing) {
      this.#isClosing = true;
      this.#lastClose = this.#close(graceS);
    }
    return this.#lastClose;
  }

  async #close(graceS: number): Promise<void> {
    const loops = [...this.#loops.values()];
    this.#pause("shutdown");
    if (graceS > 0) await this.#within(loops, graceS);
    this.#isRunning = this.#isClosing = false;
    for (const loop of this.#loops.values()) loop.end();
    this.#resume("shutdown");
    await this.#aborted(loops);
  }

  #pause(reason: PauseReason): void {
    this.#pauses.add(reason);
    for (const loop of this.#loops.values()) loop.tell({ type: "pause", reason });
  }

  #resume(reason: PauseReason): void {
    this.#pauses.delete(reason);
    const now = this.#clock.now();
    const all = [...this.#loops.values()];
    const stale = all.filter((loop) => isStaleOnceResumed(loop.policy, loop.state, reason, now));
    stale.sort((one, other) => interval(one) - interval(other));
    for (const [position, loop] of stale.entries()) loop.tell({ type: "resume", reason, position });
    for (const loop of all) loop.tell({ type: "resume", reason });
  }

  /** Give a name free, but not before its last run is over: a new loop of that name must not overlap it. */
  #forget(loop: Loop): void {
    if (!this.#removed.has(loop) || loop.underWay !== null || loop.state.life !== "closed") return;
    this.#removed.delete(loop);
    if (this.#loops.get(loop.name) === loop) this.#loops.delete(loop.name);
  }

  async #aborted(loops: readonly Loop[]): Promise<void> {
    await this.#within(loops, ABORT_S);
    for (const loop of loops) {
      if (loop.underWay !== null) this.#log.error(`loop "${loop.name}" does not end: it ignores its aborted signal`);
    }
  }

  /** Wait until the runs under way have ended, at most this long. */
  async #within(loops: readonly Loop[], limitS: number): Promise<void> {
    const runs = loops.map((loop) => loop.underWay).filter((run) => run !== null);
    if (runs.length === 0) return;
    let cancel = (): void => undefined;
    const limit = new Promise<void>((resolve) => {
      cancel = this.#clock.timer(resolve, limitS * 1000);
    });
    await Promise.race([Promise.all(runs), limit]);
    cancel();
  }
}

function interval(loop: Loop): number {
  return loop.state.baseS * loop.state.multiplier;
}
