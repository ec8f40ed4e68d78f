/** One run of a loop: the function that it was begun with, its signal, and the promise that its triggers share. */

import type { LoopOptions, LoopPolicy } from "./policy.ts";
import type { LoopResult } from "./outcome.ts";
import type { Outcome } from "./state.ts";

/** Called without overlapping itself. The signal is aborted at the timeout and when the loop is closed. */
export type LoopFunction = (signal: AbortSignal) => LoopResult | Promise<LoopResult>;

/** What stands behind a name. A run under way keeps its own when the name is registered again. */
export interface Registration {
  readonly call: LoopFunction;
  readonly options: LoopOptions;
  readonly policy: LoopPolicy;
}

/** A promise of an outcome, from the side that knows it. */
export class Reply {
  readonly promise: Promise<Outcome>;
  #resolve!: (outcome: Outcome) => void;

  constructor() {
    this.promise = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** Tell the outcome. Only the first one counts. */
  give(outcome: Outcome): void {
    this.#resolve(outcome);
  }
}

export class Run {
  readonly number: number;
  readonly generation: number;
  readonly registration: Registration;
  readonly abort = new AbortController();
  readonly over = new Reply();
  hasTimedOut = false;
  answer: Reply | null;

  constructor(number: number, generation: number, registration: Registration, answer: Reply | null) {
    this.number = number;
    this.generation = generation;
    this.registration = registration;
    this.answer = answer;
  }
}
