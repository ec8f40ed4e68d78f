/**
 * How a loop behaves: the options that a caller writes, and the checked policy that the reducer reads.
 *
 * Every bad option is refused when the loop is registered, in a message that names the loop.
 */

import type { BreakerPolicy } from "./breaker.ts";
import type { Duration } from "./duration.ts";
import { seconds } from "./duration.ts";
import { BadInput } from "./errors.ts";
import type { Outcome } from "./state.ts";

/** No delay is longer than ten years before jitter. */
export const LONGEST_S = 315_360_000;
/** Between two stale loops that resume together: so far apart they do not arrive as one burst. */
export const STAGGER_S = 0.15;
const SHORTEST_S = 0.001;
const DEFAULT_CAP = 8;
const DEFAULT_JITTER = 0.1;

export interface AdaptivePolicy {
  readonly minimumS: number;
  readonly maximumS: number;
  readonly faster: number;
  readonly slower: number;
  readonly patience: number;
}

/** The checked options. The conformance vectors write the same fields in snake case. */
export interface LoopPolicy {
  readonly everyS: number;
  /** The largest multiplier; null for no limit. */
  readonly cap: number | null;
  readonly jitter: number;
  readonly firstS: number | null;
  /** For the shell; the reducer does not read it. */
  readonly timeoutS: number | null;
  readonly fixedRate: boolean;
  /** The factor by which the pause reason `hidden` slows it down; null: it stops. */
  readonly slowWhenHidden: number | null;
  readonly adaptive: AdaptivePolicy | null;
  readonly breaker: BreakerPolicy | null;
  readonly safetyEveryS: number | null;
}

export const DEFAULTS: Omit<LoopPolicy, "everyS"> = {
  cap: DEFAULT_CAP,
  jitter: DEFAULT_JITTER,
  firstS: null,
  timeoutS: null,
  fixedRate: false,
  slowWhenHidden: null,
  adaptive: null,
  breaker: null,
  safetyEveryS: null,
};

export interface LoopOptions {
  /** The interval, counted from the end of one run to the start of the next. */
  readonly every: Duration;
  /** The largest multiplier that failures lead to; Infinity for no limit. Default: 8. */
  readonly cap?: number;
  /** Each delay is spread by ± this fraction, from 0 to 1. Default: 0.1. */
  readonly jitter?: number;
  /** The delay before the first run; default: one interval. `"0s"` runs at once. */
  readonly first?: Duration;
  /** A run that takes longer has failed with the reason "timeout", and its signal is aborted. */
  readonly timeout?: Duration;
  /** Keep the phase of the clock: ticks that were missed are counted, not caught up. */
  readonly fixedRate?: boolean;
  /** What the pause reason `hidden` does: stop it, or slow it down by this factor. Default: "stop". */
  readonly whenHidden?: "stop" | number;
  /** Adapt the interval to how often `ok(value)` changes. */
  readonly adaptive?: {
    readonly minimum: Duration;
    readonly maximum: Duration;
    readonly faster?: number;
    readonly slower?: number;
    readonly patience?: number;
  };
  /** Stop for a cooldown after that many failures in a row, then send one probe. */
  readonly breaker?: { readonly failures: number; readonly cooldown: Duration };
  /** The interval while push is alive (`pushConnected()`), as the safety net beneath it. */
  readonly safetyEvery?: Duration;
  /** Asked before each run; false skips the run without touching the backoff. */
  readonly when?: () => boolean | Promise<boolean>;
  /** Called with each outcome. What it throws is logged and changes nothing. */
  readonly onOutcome?: (outcome: Outcome) => void;
}

/** Check the options of the loop `name`. */
export function policyOf(name: string, options: LoopOptions): LoopPolicy {
  const of = (option: string): string => `loop "${name}": ${option}`;
  const everyS = seconds(options.every, of("every"));
  if (everyS < SHORTEST_S) throw new BadInput(`${of("every")}: ${options.every}: write an interval of 1 ms or more`);
  const safetyEveryS = optional(options.safetyEvery, of("safetyEvery"));
  if (safetyEveryS !== null && safetyEveryS < everyS) {
    throw new BadInput(`${of("safetyEvery")}: ${options.safetyEvery} is shorter than every: ${options.every}`);
  }
  const cap = options.cap === undefined ? DEFAULT_CAP : atLeast(options.cap, 1, of("cap"));
  return {
    everyS,
    cap: cap === Infinity ? null : cap,
    jitter: between(options.jitter ?? DEFAULT_JITTER, 0, 1, of("jitter")),
    firstS: optional(options.first, of("first")),
    timeoutS: positive(optional(options.timeout, of("timeout")), of("timeout")),
    fixedRate: options.fixedRate ?? false,
    slowWhenHidden: slowdown(options.whenHidden ?? "stop", of("whenHidden")),
    adaptive: options.adaptive === undefined ? null : adaptiveOf(options.adaptive, everyS, of("adaptive")),
    breaker: options.breaker === undefined ? null : breakerOf(options.breaker, of("breaker")),
    safetyEveryS,
  };
}

function adaptiveOf(written: NonNullable<LoopOptions["adaptive"]>, everyS: number, name: string): AdaptivePolicy {
  const minimumS = positive(seconds(written.minimum, `${name}.minimum`), `${name}.minimum`);
  const maximumS = seconds(written.maximum, `${name}.maximum`);
  if (!(minimumS <= everyS && everyS <= maximumS)) {
    throw new BadInput(`${name}: every must lie between minimum ${written.minimum} and maximum ${written.maximum}`);
  }
  return {
    minimumS,
    maximumS,
    faster: between(written.faster ?? 0.5, 0, 1, `${name}.faster`),
    slower: atLeast(written.slower ?? 1.5, 1, `${name}.slower`),
    patience: atLeast(written.patience ?? 3, 1, `${name}.patience`),
  };
}

function breakerOf(written: NonNullable<LoopOptions["breaker"]>, name: string): BreakerPolicy {
  const cooldownS = positive(seconds(written.cooldown, `${name}.cooldown`), `${name}.cooldown`);
  return { failures: atLeast(written.failures, 1, `${name}.failures`), cooldownS };
}

function slowdown(whenHidden: "stop" | number, name: string): number | null {
  return whenHidden === "stop" ? null : between(whenHidden, 1, 1e6, name);
}

function optional(duration: Duration | undefined, name: string): number | null {
  return duration === undefined ? null : seconds(duration, name);
}

function positive<Value extends number | null>(value: Value, name: string): Value {
  if (value === 0) throw new BadInput(`${name}: 0 is not possible; write a longer duration, or leave it out`);
  return value;
}

function atLeast(value: number, least: number, name: string): number {
  return between(value, least, Infinity, name);
}

function between(value: number, least: number, most: number, name: string): number {
  if (typeof value === "number" && value >= least && value <= most) return value;
  const range = most === Infinity ? `${least} or more` : `between ${least} and ${most}`;
  throw new BadInput(`${name}: ${String(value)}: write a number ${range}`);
}
