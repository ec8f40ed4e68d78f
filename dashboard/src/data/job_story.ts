/** What happened to a job, in order: its own decisions and what operators did. Pure. */

import { exactText } from "./exact.ts";
import type { JobDetail, TrailEntry } from "./shapes.ts";
import type { Tone } from "./status.ts";
import { ms, span } from "./times.ts";

export interface StoryEntry {
  at: number | null;
  what: string;
  tone: Tone;
  by: string;
  says: string;
}

const WORDS: Record<string, { what: string; tone: Tone }> = {
  retry: { what: "Waits for its next attempt", tone: "warn" },
  failed: { what: "Failed", tone: "fail" },
  done: { what: "Done", tone: "ok" },
  cancel: { what: "Cancel asked for", tone: "warn" },
  canceled: { what: "Canceled", tone: "idle" },
  snooze: { what: "Snoozed by its own function", tone: "idle" },
  "hand-back": { what: "Handed back to the queue", tone: "warn" },
  rescue: { what: "Taken back from a lost worker", tone: "warn" },
  "run-now": { what: "Made due at once", tone: "active" },
};

/** Return the entries, oldest first. */
export function story(job: JobDetail): StoryEntry[] {
  const entries: StoryEntry[] = [{ at: ms(job.created_at), what: "Enqueued", tone: "idle", by: "", says: `on queue ${job.queue}` }];
  for (const entry of job.trail) entries.push(storyEntry(entry));
  if (job.started_at !== null) {
    entries.push({ at: ms(job.started_at), what: `Attempt ${job.attempt} started`, tone: "active", by: job.worker ?? "", says: "" });
  }
  if (job.ended_at !== null && !job.trail.some((entry) => entry.what === job.state)) {
    const word = WORDS[job.state];
    entries.push({ at: ms(job.ended_at), what: word?.what ?? job.state, tone: word?.tone ?? "idle", by: job.worker ?? "", says: "" });
  }
  const known = new Set(entries.map((entry) => `${entry.what} ${entry.by}`));
  for (const action of job.actions) {
    const entry = storyEntry({ ...action.body, at: ms(action.at) / 1000 });
    if (!known.has(`${entry.what} ${entry.by}`)) entries.push(entry);
  }
  return entries.sort((one, other) => (one.at ?? 0) - (other.at ?? 0));
}

function storyEntry(entry: TrailEntry): StoryEntry {
  const what = entry.what ?? "Noted";
  const byOperator = what === "retry" && entry.attempt === undefined;
  const word = byOperator ? { what: "Retried", tone: "active" as const } : (WORDS[what] ?? { what, tone: "idle" as const });
  const error = entry.error === undefined ? "" : `${entry.type ?? "Error"}: ${entry.error}`;
  const isNamed = entry.attempt === undefined || (entry.why ?? "").startsWith(`attempt ${entry.attempt} `);
  const attempt = isNamed ? "" : `attempt ${entry.attempt}`;
  return {
    at: entry.at === undefined ? null : entry.at * 1000,
    what: word.what,
    tone: word.tone,
    by: entry.by ?? "",
    says: [attempt, entry.why ?? "", error].filter((part) => part !== "").join(" · "),
  };
}

/** Return a limit in words: "mail/a.example: 3 at a time, 5 starts in 1s". */
export function limitText({ key, running, starts, per_s }: NonNullable<JobDetail["limit"]>): string {
  const words = [running ? `${running} at a time` : "", starts ? `${starts} ${starts === 1 ? "start" : "starts"} in ${span(per_s ?? 0)}` : ""];
  return `${key}: ${words.filter((one) => one !== "").join(", ")}`;
}

/** Return how far a group is: "7 of 10 ended, 1 failed". */
export function groupText({ total, ended, failed, canceled }: NonNullable<JobDetail["members"]>): string {
  const words = [`${ended} of ${total} ended`, failed > 0 ? `${failed} failed` : "", canceled > 0 ? `${canceled} canceled` : ""];
  return words.filter((one) => one !== "").join(", ");
}

/** Return the call that enqueues the same job again, as Python. */
export function asPython(job: JobDetail, write: (value: unknown) => string): string {
  const parts = job.args.map(write);
  const named = Object.entries(job.kwargs).map(([name, value]) => `${name}=${write(value)}`);
  return `await app.jobs[${write(job.name)}].enqueue(${[...parts, ...named].join(", ")})`;
}

/** Return the call that enqueues the same job again over HTTP, for a shell. */
export function asCommand(job: JobDetail, address: string, quote: (text: string) => string): string {
  const body = exactText({ name: job.name, args: job.args, kwargs: job.kwargs });
  return `curl -X POST ${quote(address)} -H 'Content-Type: application/json' -d ${quote(body)}`;
}
