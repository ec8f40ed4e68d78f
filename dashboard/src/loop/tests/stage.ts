/** Virtual time for tests: nothing waits, and every timer fires in its order. */

import type { Clock, Log } from "../clock.ts";
import { Loops } from "../loops.ts";

interface Timer {
  readonly atMs: number;
  readonly callback: () => void;
}

export class VirtualClock implements Clock {
  #nowMs = 0;
  #timers: Timer[] = [];

  now(): number {
    return this.#nowMs / 1000;
  }

  wall(): number {
    return 1_000_000_000_000 + this.#nowMs;
  }

  timer(callback: () => void, delayMs: number): () => void {
    const timer = { atMs: this.#nowMs + delayMs, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer);
    };
  }

  get timers(): number {
    return this.#timers.length;
  }

  /** Let this much time pass. What is awaited meanwhile goes on between two timers. */
  async advance(durationS: number): Promise<void> {
    const endMs = this.#nowMs + durationS * 1000;
    await settle();
    for (;;) {
      const next = this.#timers.reduce<Timer | null>((best, one) => (best && best.atMs <= one.atMs ? best : one), null);
      if (next === null || next.atMs > endMs) break;
      this.#timers = this.#timers.filter((one) => one !== next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.callback();
      await settle();
    }
    this.#nowMs = endMs;
  }
}

/** Let everything go on that waits for nothing but its turn. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

export class Stage {
  readonly clock = new VirtualClock();
  readonly logged: string[] = [];
  readonly loops: Loops;

  constructor(chance = 0.5) {
    const log: Log = { warn: (text) => this.logged.push(text), error: (text) => this.logged.push(text) };
    this.loops = new Loops({ clock: this.clock, random: () => chance, log });
    this.loops.start();
  }
}

/** A function whose runs end when the test says so. */
export class Held {
  readonly started: number[] = [];
  readonly signals: AbortSignal[] = [];
  #ends: ((result: unknown) => void)[] = [];
  readonly #clock: VirtualClock;

  constructor(clock: VirtualClock) {
    this.#clock = clock;
  }

  readonly call = (signal: AbortSignal): Promise<never> => {
    this.started.push(this.#clock.now());
    this.signals.push(signal);
    return new Promise((resolve) => this.#ends.push(resolve as (result: unknown) => void));
  };

  /** End the oldest run that is under way. */
  async end(result?: unknown): Promise<void> {
    this.#ends.shift()?.(result);
    await settle();
  }
}
