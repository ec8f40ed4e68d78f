/** Where the points of a chart are. Pure. */

import type { Tone } from "./status.ts";

export interface ChartSeries {
  key: string;
  label: string;
  tone: Tone;
}

export interface ChartPoint {
  /** When the step begins: milliseconds since the epoch. */
  at: number;
  /** A value that is missing is a gap. */
  values: Record<string, number | null | undefined>;
}

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
/** Of jobs that ended. */
export const OUTCOMES: ChartSeries[] = [
  { key: "done", label: "done", tone: "ok" },
  { key: "failed", label: "failed", tone: "fail" },
  { key: "canceled", label: "canceled", tone: "idle" },
];
const POINTS_LIMIT = 120;

/** Return a round number that is not below the value: where the axis ends. */
export function niceTop(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 2, 5, 10];
  return (steps.find((one) => one * power >= value - 1e-12) ?? 10) * power;
}

/** Return one point for each step of a range, aligned to the epoch; steps without figures have no values. */
export function onGrid(points: ChartPoint[], fromMs: number, toMs: number, stepMs: number): ChartPoint[] {
  const step = Math.max(stepMs, Math.ceil((toMs - fromMs) / POINTS_LIMIT / stepMs) * stepMs);
  const known = new Map(points.map((point) => [Math.floor(point.at / step) * step, point.values]));
  const grid: ChartPoint[] = [];
  for (let at = Math.floor(fromMs / step) * step; at < toMs; at += step) grid.push({ at, values: known.get(at) ?? {} });
  return grid.slice(-POINTS_LIMIT);
}

export function stackHeight(point: ChartPoint, series: ChartSeries[]): number {
  return series.reduce((sum, one) => sum + (point.values[one.key] ?? 0), 0);
}
