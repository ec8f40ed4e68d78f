/** What views of services compute from the answers of the API. Pure. */

import { type ChartPoint, onGrid } from "./chart.ts";
import type { HistoryBucket, LookItem, Pause, ServiceItem, Uptime } from "./shapes.ts";
import { percentText } from "./text.ts";
import { ms } from "./times.ts";

export interface LatencyRange {
  /** As the URL and the API write it. */
  value: string;
  /** The step that the API has figures for. */
  step: "minute" | "hour" | "day";
  spanMs: number;
  /** The step of the chart: at most 120 points. */
  stepMs: number;
  says: string;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

export const RANGES: LatencyRange[] = [
  { value: "1h", step: "minute", spanMs: HOUR_MS, stepMs: MINUTE_MS, says: "by minute, last hour" },
  { value: "24h", step: "hour", spanMs: DAY_MS, stepMs: HOUR_MS, says: "by hour, last 24 hours" },
  // A week has 168 hours. Percentiles cannot be added up, so each point is the slower hour of two.
  { value: "7d", step: "hour", spanMs: 7 * DAY_MS, stepMs: 2 * HOUR_MS, says: "the slower hour of each two, last 7 days" },
  { value: "90d", step: "day", spanMs: 90 * DAY_MS, stepMs: DAY_MS, says: "by day (UTC), last 90 days" },
];

export function rangeOf(value: string): LatencyRange {
  const usual = RANGES[1] as LatencyRange;
  return RANGES.find((one) => one.value === value) ?? usual;
}

/** Return latencies in seconds, one point for each step; steps without looks have no values. */
export function latencyPoints(buckets: HistoryBucket[], range: LatencyRange, nowMs: number): ChartPoint[] {
  const known = new Map<number, ChartPoint>();
  for (const bucket of buckets) {
    const at = Math.floor(ms(bucket.at) / range.stepMs) * range.stepMs;
    const before = known.get(at)?.values ?? {};
    const values = {
      p50: slower(before["p50"], bucket.p50_ms),
      p95: slower(before["p95"], bucket.p95_ms),
      p99: slower(before["p99"], bucket.p99_ms),
    };
    known.set(at, { at, values });
  }
  const end = Math.floor(nowMs / range.stepMs) * range.stepMs + range.stepMs;
  return onGrid([...known.values()], end - range.spanMs, end, range.stepMs);
}

function slower(one: number | null | undefined, otherMs: number | null): number | null {
  if (otherMs === null) return one ?? null;
  return Math.max(one ?? 0, otherMs / 1000);
}

export interface ErrorGroup {
  text: string;
  count: number;
  lastAt: string;
  firstAt: string;
}

/** Return the errors of looks (newest first), the most frequent first. */
export function groupErrors(looks: LookItem[]): ErrorGroup[] {
  const groups = new Map<string, ErrorGroup>();
  for (const look of looks) {
    const text = errorText(look);
    if (text === null) continue;
    const group = groups.get(text);
    if (group === undefined) groups.set(text, { text, count: 1, lastAt: look.at, firstAt: look.at });
    else {
      group.count += 1;
      group.firstAt = look.at;
    }
  }
  return [...groups.values()].sort((one, other) => other.count - one.count);
}

/** Whether a look of the history is the mark of a pause: no look was made then. */
export function isMarkOfPause(look: LookItem): boolean {
  return look.status === "unknown" && (look.error ?? "").startsWith("paused");
}

function errorText(look: LookItem): string | null {
  if (isMarkOfPause(look)) return null;
  if (look.error !== null && look.error !== "") return look.error;
  if (look.status !== "down") return null;
  return look.http_status === null ? "down, without a message" : `down, HTTP ${look.http_status}`;
}

/** Return how much of a span is known: "98%", "<1%" or "–". Never rounds up. */
export function coveredShare(uptime: Uptime | null | undefined): string {
  if (uptime === null || uptime === undefined || (uptime.covered <= 0 && uptime.percent === null)) return "–";
  const whole = Math.floor(Math.min(1, uptime.covered) * 100);
  return whole < 1 ? "<1%" : `${whole}%`;
}

export function coveredText(uptime: Uptime | null | undefined): string {
  const share = coveredShare(uptime);
  return share === "–" ? "nothing known yet" : `${share} of the time known`;
}

export function uptimeText(uptime: Uptime | null | undefined): string {
  return percentText(uptime?.percent ?? null);
}

/** Return "paused by ann: the reason". */
export function pauseText(pause: Pause): string {
  return `paused by ${pause.by || "an operator"}${pause.reason === "" ? "" : `: ${pause.reason}`}`;
}

const BADNESS: Record<string, number> = { down: 0, stale: 1, degraded: 2, unknown: 3, paused: 4, up: 5 };

/** Return how far up a service stands in a list of the worst. */
export function badness(service: ServiceItem): number {
  const rank = BADNESS[service.status] ?? 3;
  return rank === 5 && service.warnings.length > 0 ? 4 : rank;
}

export function worstFirst(one: ServiceItem, other: ServiceItem): number {
  return badness(one) - badness(other) || byName(one, other);
}

export function byName(one: { name: string }, other: { name: string }): number {
  return one.name.localeCompare(other.name, "en") || (one.name < other.name ? -1 : 1);
}
