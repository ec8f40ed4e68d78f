/** Which tone a word of the API has. A status is always an icon and a word; the tone alone says nothing. */

import type { JobItem } from "./shapes.ts";

export type Tone = "ok" | "active" | "warn" | "fail" | "idle";

const TONES: Record<string, Tone> = {
  done: "ok",
  ready: "ok",
  up: "ok",
  ok: "ok",
  alive: "ok",
  passed: "ok",
  waiting: "idle",
  idle: "idle",
  queued: "idle",
  limited: "idle",
  canceled: "idle",
  unknown: "idle",
  stopped: "idle",
  closed: "idle",
  running: "active",
  looking: "active",
  canceling: "warn",
  retrying: "warn",
  snoozed: "idle",
  degraded: "warn",
  stale: "warn",
  paused: "warn",
  late: "warn",
  failing: "fail",
  failed: "fail",
  down: "fail",
  open: "fail",
  timed_out: "fail",
  silent: "fail",
  needs_code: "warn",
  cleaning: "active",
};

export function toneOf(word: string): Tone {
  return TONES[word] ?? "idle";
}

/** Return the word for where a job is: "retrying" and "canceling" are states that people ask for. */
export function jobWord(job: JobItem): string {
  if (job.state === "running" && job.cancel_requested) return "canceling";
  if (job.state === "queued" && job.error !== null) return "retrying";
  return job.state;
}
