/**
 * One loop as its caller holds it: a thin shell around the reducer.
 *
 * The function never overlaps itself. A function that goes on after its signal was aborted counts as under way until it
 * returns. The shell decides nothing: it reads the clock, asks the reducer, and does what the effect says.
 */

import type { Clock, Log } from "./clock.ts";
import type { Effect, LoopEvent } from "./events.ts";
import { CANCELED, CONDITION_SKIP, SUCCESS, TIMED_OUT, failure, isAnswer, judge, textOf } from "./outcome.ts";
import type { Duration } from "./duration.ts";
import { reduce } from "./reducer.ts";
import type { Registration } from "./run.ts";
import { Reply, Run } from "./run.ts";
import type { LoopState, Outcome, PauseReason, Phase } from "./state.ts";
import { initial, nextDueOf, phaseOf, skipsOf } from "./state.ts";

/** The longest delay that timers of browsers hold: beyond it they fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** How long a function may take to heed its aborted signal before the log says that it does not. */
const HEED_MS = 1000;
const NO_VALUE = Symbol("no value");

/** What a loop needs of the registry that holds it. */
export interface LoopHost {
  readonly clock: Clock;
  readonly chance: () => number;
  readonly log: Log;
  readonly remove: (name: string, grace: Duration) => Promise<void>;
  readonly ended: (loop: Loop) => void;
}

/** A frozen snapshot, with what is computed from it. */
export type Snapshot = LoopState & {
  readonly phase: Phase;
  /** On the monotonic clock; `loop.nextDueAt` is the same instant as a date. */
  readonly nextDue: number | null;
  readonly skips: Readonly<Record<string, number>>;
};

export class Loop {
  readonly name: string;
  readonly #host: LoopHost;
  #registration: Registration;
  #state: LoopState;
  #snapshot: Snapshot | null = null;
  #run: Run | null = null;
  #followup: Reply | null = null;
  #armedFor: number | null = null;
  #disarm: (() => void) | null = null;
  #lastValue: unknown = NO_VALUE;
  #hasWarned = false;
  readonly #listeners = new Set<(state: Snapshot) => void>();

  /** @internal Loops are made by `Loops.add`. */
  constructor(name: string, registration: Registration, host: LoopHost) {
    this.name = name;
    this.#host = host;
    this.#registration = registration;
    this.#state = initial(registration.policy);
  }

  /** Where the loop stands at this instant. */
  get state(): Snapshot {
    const state = this.#state;
    this.#snapshot ??= Object.freeze({
      ...state,
      phase: phaseOf(state),
      nextDue: nextDueOf(state),
      skips: Object.freeze(skipsOf(state)),
    });
    return this.#snapshot;
  }

  get policy(): Registration["policy"] {
    return this.#registration.policy;
  }

  /** When it runs next, by the wall clock. */
  get nextDueAt(): Date | null {
    return this.#onWall(nextDueOf(this.#state));
  }

  /** When it succeeded last, by the wall clock. */
  get lastOkAt(): Date | null {
    return this.#onWall(this.#state.lastOk);
  }

  /** Call back with the state, now and after every change. Return what ends that. (The contract of Svelte's stores.) */
  subscribe(listener: (state: Snapshot) => void): () => void {
    this.#listeners.add(listener);
    listener(this.state);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Run now, whatever the delay, the condition or the breaker say. The promise gives the outcome and never rejects.
   *
   * During a run, any number of triggers become one run after it. A loop that an operator paused is left alone unless
   * `force` is set: the outcome then is "skipped". The function must not await a trigger of its own loop: that run
   * begins when this one has ended.
   */
  trigger(options: { readonly force?: boolean } = {}): Promise<Outcome> {
    const answer = this.#followup ?? new Reply();
    const effect = this.#step({ type: "trigger", force: options.force ?? false });
    if (effect === "run" && this.#run !== null) this.#run.answer = answer;
    else if (effect === "join") this.#followup = answer;
    else return Promise.resolve(this.#skipped());
    return answer.promise;
  }

  /** Start no more runs until every reason is gone. A run under way goes on. */
  pause(reason: Exclude<PauseReason, "shutdown"> = "operator"): void {
    this.#step({ type: "pause", reason });
  }

  /** Take one reason away. A loop that is due runs at once, another keeps the time that remains. */
  resume(reason: Exclude<PauseReason, "shutdown"> = "operator"): void {
    this.#step({ type: "resume", reason });
  }

  /** Forget failures, breaker and adapted interval. A stopped loop starts again. */
  reset(): void {
    this.#step({ type: "reset" });
  }

  /** Push works: look once now, then poll at `safetyEvery` only. Call `trigger()` for each push. */
  pushConnected(): void {
    this.#step({ type: "push_up" });
  }

  /** Push is gone: polling carries alone, at once if the last look is too old already. */
  pushLost(): void {
    this.#step({ type: "push_down" });
  }

  /** Remove this loop. A run under way gets the grace period to end, then its signal is aborted. */
  close(grace: Duration = "0s"): Promise<void> {
    return this.#host.remove(this.name, grace);
  }

  /** @internal For the registry: tell the loop what happened. */
  tell(event: LoopEvent): void {
    this.#step(event);
  }

  /** @internal For the registry: carry another function. A run of the old one ends first, its result is dropped. */
  takeOver(registration: Registration): void {
    this.#registration = registration;
    this.#lastValue = NO_VALUE;
    this.#hasWarned = false;
    this.#step({ type: "replace" });
  }

  /** @internal For the registry: no more runs, and every caller that waits is answered. */
  end(): void {
    const run = this.#run;
    const effect = this.#step({ type: "close" });
    this.#followup?.give(CANCELED);
    this.#followup = null;
    run?.answer?.give(CANCELED);
    if (effect === "cancel") run?.abort.abort(new DOMException("the loop was closed", "AbortError"));
  }

  /** @internal For the registry: a promise that the run under way has ended, or null. */
  get underWay(): Promise<Outcome> | null {
    return this.#run?.over.promise ?? null;
  }

  #step(event: LoopEvent, condition: Promise<unknown> | null = null): Effect {
    const { clock, chance, log } = this.#host;
    const before = this.#state;
    const [after, effect] = reduce(this.#registration.policy, before, event, clock.now(), chance());
    if (after === before) return effect;
    this.#state = after;
    this.#snapshot = null;
    this.#arm();
    if (effect === "run") this.#begin(after, condition);
    for (const listener of [...this.#listeners]) {
      guarded(() => listener(this.state), log, `loop "${this.name}": a subscriber threw`);
    }
    return effect;
  }

  /** Point the one timer at the one deadline. */
  #arm(): void {
    const due = nextDueOf(this.#state);
    if (due === this.#armedFor) return;
    this.#disarm?.();
    this.#disarm = null;
    this.#armedFor = due;
    if (due === null) return;
    const { clock } = this.#host;
    // Rounded up, so that the timer does not fire early; a rounding error is not a millisecond.
    const delayMs = Math.ceil((due - clock.now()) * 1000 - 1e-6);
    this.#disarm = clock.timer(() => this.#fired(), Math.min(Math.max(0, delayMs), LONGEST_TIMER_MS));
  }

  #fired(): void {
    const due = this.#armedFor;
    this.#armedFor = this.#disarm = null;
    // Timers may fire a little early, and a deadline beyond 24 days takes several of them.
    if (due !== null && this.#host.clock.now() < due) this.#arm();
    else this.#tick();
  }

  #tick(): void {
    const when = this.#registration.options.when;
    if (when === undefined) {
      this.#step({ type: "tick" });
      return;
    }
    try {
      const answer = when();
      if (typeof answer === "boolean") {
        this.#step({ type: "tick", condition: answer });
        return;
      }
      const asked = Promise.resolve(answer);
      // Where the tick leads to no run, no code awaits the answer.
      asked.catch(() => undefined);
      this.#step({ type: "tick" }, asked);
    } catch (error) {
      this.#step({ type: "tick", condition: textOf(error) });
    }
  }

  #begin(state: LoopState, condition: Promise<unknown> | null): void {
    // Everything that the run needs is read now: the loop may be replaced before the function is called.
    const run = new Run(state.inFlight, state.generation, this.#registration, this.#followup);
    this.#run = run;
    this.#followup = null;
    void this.#execute(run, condition);
  }

  async #execute(run: Run, condition: Promise<unknown> | null): Promise<void> {
    const { timeoutS } = run.registration.policy;
    const cancelTimer = timeoutS === null ? null : this.#host.clock.timer(() => this.#timedOut(run), timeoutS * 1000);
    const outcome = await this.#outcome(run, condition);
    cancelTimer?.();
    this.#ended(run, run.hasTimedOut ? TIMED_OUT : outcome);
  }

  /** Call the function and judge its answer. Never rejects. */
  async #outcome(run: Run, condition: Promise<unknown> | null): Promise<Outcome> {
    try {
      // The function begins after what its caller does now, even if it has no await.
      if (!(await (condition ?? true))) return CONDITION_SKIP;
    } catch (error) {
      return failure(`condition: ${textOf(error)}`);
    }
    const { signal } = run.abort;
    if (signal.aborted || run.generation !== this.#state.generation) return CANCELED;
    try {
      return this.#judged(await run.registration.call(signal), run);
    } catch (error) {
      if (!(error instanceof Error) || error.name !== "AbortError") return failure(textOf(error));
      if (!signal.aborted) {
        this.#host.log.warn(`loop "${this.name}": its function threw an AbortError of its own; not counted`);
      }
      return CANCELED;
    }
  }

  #judged(result: unknown, run: Run): Outcome {
    const outcome = judge(result);
    // Replaced meanwhile: the new function's values are compared with each other only.
    if (run.generation !== this.#state.generation) return outcome ?? SUCCESS;
    if (outcome === null) {
      if (!this.#hasWarned) {
        this.#hasWarned = true;
        this.#host.log.warn(
          `loop "${this.name}" returned a ${typeof result}, which counts as success. Return nothing or true for ` +
            "success, false for failure, or ok(value), failed(reason), snooze(delay), stop(reason)",
        );
      }
      return SUCCESS;
    }
    const compares = run.registration.policy.adaptive !== null && outcome.kind === "ok" && isAnswer(result);
    return compares ? { ...outcome, changed: this.#changed(result.value) } : outcome;
  }

  #changed(value: unknown): boolean | null {
    const last = this.#lastValue;
    this.#lastValue = comparable(value);
    return last === NO_VALUE ? null : last !== this.#lastValue;
  }

  #timedOut(run: Run): void {
    run.hasTimedOut = true;
    const cancelWarning = this.#host.clock.timer(() => {
      this.#host.log.warn(
        `loop "${this.name}": its function goes on after its timeout, and no run begins until it returns: ` +
          "let it heed its signal, as in fetch(url, { signal })",
      );
    }, HEED_MS);
    void run.over.promise.then(cancelWarning);
    run.abort.abort(new DOMException("the run took longer than its timeout", "TimeoutError"));
    this.#step({ type: "overran", run: run.number, generation: run.generation, outcome: TIMED_OUT });
    this.#hook(run, TIMED_OUT);
    run.answer?.give(TIMED_OUT);
  }

  #ended(run: Run, outcome: Outcome): void {
    this.#run = null;
    if (!run.hasTimedOut && outcome.kind !== "skipped") this.#hook(run, outcome);
    const effect = this.#step({ type: "finished", run: run.number, generation: run.generation, outcome });
    if (effect !== "run") {
      this.#followup?.give(this.#skipped());
      this.#followup = null;
    }
    run.answer?.give(outcome);
    run.over.give(outcome);
    this.#host.ended(this);
  }

  #hook(run: Run, outcome: Outcome): void {
    const hook = run.registration.options.onOutcome;
    if (hook === undefined) return;
    guarded(() => hook(outcome), this.#host.log, `loop "${this.name}": its onOutcome threw; the outcome stands`);
  }

  #skipped(): Outcome {
    const { life } = this.#state;
    return { kind: "skipped", reason: life === "live" ? "paused" : life, delayS: 0, changed: null };
  }

  #onWall(instant: number | null): Date | null {
    const { clock } = this.#host;
    return instant === null ? null : new Date(clock.wall() + (instant - clock.now()) * 1000);
  }
}

/** Return something that is equal (===) for equal values. A value that JSON cannot write counts as changed. */
function comparable(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  try {
    return JSON.stringify(value);
  } catch {
    return Symbol("not comparable");
  }
}

function guarded(call: () => void, log: Log, message: string): void {
  try {
    call();
  } catch (error) {
    log.error(message, error);
  }
}
