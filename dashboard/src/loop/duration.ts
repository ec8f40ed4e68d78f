/** Durations as people write them: "500ms", "30s", "5m", "1h", "1d". Inside, everything is in seconds. */

import { BadInput } from "./errors.ts";

export type Duration = `${number}ms` | `${number}s` | `${number}m` | `${number}h` | `${number}d`;

const UNITS_S: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 };

/** Return the seconds of a duration. `name` says in the error what was wrong. */
export function seconds(duration: Duration, name: string): number {
  const found = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(String(duration));
  const unit = UNITS_S[found?.[2] ?? ""];
  if (found === null || unit === undefined) {
    throw new BadInput(
      `${name}: ${JSON.stringify(duration)} is not a duration; write "500ms", "30s", "5m", "1h" or "1d"`,
    );
  }
  return Number(found[1]) * unit;
}

/**
 * Return the seconds of a Retry-After: a duration, or the header's own text, a number of seconds or a date.
 *
 * A text that cannot be read sets no floor: the backoff holds in any case.
 */
export function retryAfterS(value: Duration | string | null | undefined, wallMs: number): number {
  const text = (value ?? "").trim();
  if (/^\d+$/.test(text)) return Number(text);
  if (/^\d+(\.\d+)?(ms|s|m|h|d)$/.test(text)) return seconds(text as Duration, "retryAfter");
  const until = Date.parse(text);
  return Number.isNaN(until) ? 0 : Math.max(0, (until - wallMs) / 1000);
}
