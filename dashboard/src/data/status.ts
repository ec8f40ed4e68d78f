/** Which tone a word of the API has. A status is always an icon and a word; the tone alone says nothing. */

import type { JobItem, QueueItem } from "./shapes.ts";

export type Tone = "ok" | "active" | "warn" | "fail" | "idle";

/** Every other word is "idle". */
const TONES: Record<string, Tone> = {
  done: "ok",
  ready: "ok",
  up: "ok",
  ok: "ok",
  alive: "ok",
  passed: "ok",
  running: "active",
  looking: "active",
  canceling: "warn",
  retrying: "warn",
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

/** Return the word for what a queue is doing. */
export function queueWord(queue: QueueItem): string {
  if (queue.paused !== null) return "paused";
  if (queue.running > 0) return "running";
  if (queue.ready > 0) return "waiting";
  return queue.limited > 0 ? "limited" : queue.blocked > 0 ? "blocked" : "idle";
}
