/** What needs a person, ranked, from what the lists say. Pure. */

import type {
  IncidentItem,
  JobItem,
  LoopItem,
  QueueItem,
  RunItem,
  ScheduleItem,
  ServiceItem,
  TableItem,
  WorkerItem,
} from "./shapes.ts";
import { counted } from "./text.ts";
import { ms, roughSpan } from "./times.ts";

export interface Concern {
  id: string;
  tone: "fail" | "warn";
  /** What it is about: "Service billing". */
  subject: string;
  /** What is wrong, in one sentence. */
  says: string;
  why: string;
  path: string;
  /** Since when, in milliseconds; 0 where nothing says. */
  since: number;
  weight: number;
}

export interface Observed {
  workers: WorkerItem[];
  queues: QueueItem[];
  services: ServiceItem[];
  incidents: IncidentItem[];
  /** What explains a service that is down or degraded, by its name. */
  roots: Map<string, string[]>;
  loops: LoopItem[];
  schedules: ScheduleItem[];
  tables: TableItem[];
  /** Those that ended within the hour, the newest of them. */
  failedJobs: JobItem[];
  failedRuns: RunItem[];
  liveRuns: RunItem[];
  /** Lists that could not be read, or not far enough: what they would say is not known. */
  unread: Unread[];
  nowMs: number;
}

export interface Unread {
  name: string;
  path: string;
  why: string;
}

const LONG_WAIT_S = 60;
const LOOP_FAILURES = 2;
const RECENT_MS = 3_600_000;
/** As many rows the overview reads of a list: there may be more. */
export const READ = 200;

/** Return everything that needs attention, the worst first. */
export function concerns(seen: Observed): Concern[] {
  const all = [
    ...fleet(seen),
    ...queues(seen),
    ...services(seen),
    ...failedJobs(seen),
    ...failedRuns(seen),
    ...parkedRuns(seen),
    ...loops(seen),
    ...tables(seen),
    ...schedules(seen),
    ...unread(seen),
  ];
  return all.sort((one, other) => other.weight - one.weight || other.since - one.since || one.id.localeCompare(other.id));
}

function fleet({ workers: all, queues, nowMs }: Observed): Concern[] {
  // A worker of an adopted table runs no tasks.
  const workers = all.filter((worker) => !worker.table);
  const ready = queues.reduce((sum, queue) => sum + queue.ready + queue.limited, 0);
  const found: Concern[] = [];
  if (!workers.some((worker) => worker.is_alive) && (ready > 0 || workers.length > 0)) {
    found.push({
      id: "no-workers",
      tone: ready > 0 ? "fail" : "warn",
      subject: "Workers",
      says: ready > 0 ? `No worker is alive, and ${counted(ready, "task waits", "tasks wait")}.` : "No worker is alive.",
      why: "Start one: everpoll run module:app",
      path: "/workers",
      since: Math.max(0, ...workers.map((worker) => ms(worker.stopped_at ?? worker.beat_at))),
      weight: ready > 0 ? 100 : 50,
    });
  }
  for (const worker of workers) {
    if (worker.is_alive || worker.stopped_at !== null || nowMs - ms(worker.beat_at) > RECENT_MS) continue;
    found.push({
      id: `worker-${worker.incarnation}`,
      tone: "fail",
      subject: `Worker ${worker.label}`,
      says: "No heartbeat, and it did not report a stop.",
      why: `Last heard ${roughSpan((nowMs - ms(worker.beat_at)) / 1000)} ago on ${worker.host}, process ${worker.pid}.`,
      path: "/workers",
      since: ms(worker.beat_at),
      weight: 70,
    });
  }
  return found;
}

function queues({ queues, workers, nowMs }: Observed): Concern[] {
  const found: Concern[] = [];
  for (const queue of queues) {
    const path = `/queues/${encodeURIComponent(queue.name)}`;
    const waited = queue.oldest_due_at === null ? 0 : (nowMs - ms(queue.oldest_due_at)) / 1000;
    const due = queue.ready + queue.limited;
    if (queue.paused !== null) {
      if (due === 0) continue;
      found.push({
        id: `queue-${queue.name}`,
        tone: "warn",
        subject: `Queue ${queue.name}`,
        says: `Paused, and ${counted(due, "task waits", "tasks wait")}.`,
        why: `Paused by ${queue.paused.by || "an operator"}${queue.paused.reason ? `: ${queue.paused.reason}` : ""}.`,
        path,
        since: ms(queue.paused.at),
        weight: 60,
      });
    } else if (queue.ready > 0 && waited > LONG_WAIT_S) {
      const serving = workers.filter((worker) => worker.is_alive && worker.queues.includes(queue.name));
      const isFull = serving.length > 0 && serving.every((worker) => worker.running >= worker.slots);
      const why = serving.length === 0 ? "No live worker serves it." : isFull ? "All its workers are full." : "Its workers have free slots.";
      found.push({
        id: `queue-${queue.name}`,
        tone: serving.length === 0 ? "fail" : "warn",
        subject: `Queue ${queue.name}`,
        says: `The oldest of ${counted(queue.ready, "ready task")} has waited ${roughSpan(waited)}.`,
        why,
        path,
        since: queue.oldest_due_at === null ? 0 : ms(queue.oldest_due_at),
        weight: serving.length === 0 ? 75 : 55,
      });
    }
  }
  return found;
}

function services({ services, incidents, roots, nowMs }: Observed): Concern[] {
  const open = new Map(incidents.filter((one) => one.dependency === null).map((one) => [one.service, one]));
  return services
    .filter((one) => ["down", "degraded", "stale"].includes(one.status) && !one.is_removed)
    .filter((one) => one.muted_until === null || ms(one.muted_until) < nowMs)
    .map((one) => {
      const held = roots.get(one.name)?.filter((root) => root !== one.name) ?? open.get(one.name)?.held_by ?? [];
      const isDown = one.status === "down";
      const blame = held.length > 0 ? `Because of ${held.join(", ")}. ` : "";
      return {
        id: `service-${one.name}`,
        tone: isDown ? ("fail" as const) : ("warn" as const),
        subject: `Service ${one.name}`,
        says: isDown ? "Down." : one.status === "stale" ? "No look for too long." : "Degraded.",
        why: `${blame}${one.error ?? one.warnings[0] ?? ""}`.trim(),
        path: `/services/${encodeURIComponent(one.name)}`,
        since: one.since === null ? 0 : ms(one.since),
        weight: isDown ? (open.get(one.name)?.acknowledged_at ? 58 : 80) : 40,
      };
    });
}

function failedJobs({ failedJobs }: Observed): Concern[] {
  const groups = new Map<string, JobItem[]>();
  for (const job of failedJobs) {
    const key = `${job.name}\n${job.error?.type ?? ""}`;
    groups.set(key, [...(groups.get(key) ?? []), job]);
  }
  return [...groups.values()].map((jobs) => {
    const newest = jobs[0] as JobItem;
    const type = newest.error?.type;
    const filter = new URLSearchParams({ state: "failed", name: newest.name, ...(type ? { error: type } : {}) });
    const count = atLeast(jobs.length, failedJobs.length);
    return {
      id: `jobs-${newest.name}-${type ?? ""}`,
      tone: "fail" as const,
      subject: `Job ${newest.name}`,
      says: `${count} failed within the hour.`,
      why: newest.error === null ? "" : `${type ?? "Error"}: ${newest.error.error}`,
      path: jobs.length === 1 ? `/jobs/${newest.id}` : `/jobs?${filter}`,
      since: Math.max(...jobs.map((job) => ms(job.ended_at ?? job.created_at))),
      weight: 65,
    };
  });
}

function failedRuns({ failedRuns, nowMs }: Observed): Concern[] {
  const groups = new Map<string, RunItem[]>();
  for (const run of failedRuns) {
    if (run.ended_at === null || nowMs - ms(run.ended_at) > RECENT_MS) continue;
    const key = `${run.watch}\n${run.outcome ?? ""}`;
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()].map((runs) => {
    const newest = runs[0] as RunItem;
    const word = newest.outcome === "timed_out" ? "timed out" : "failed";
    const isOne = runs.length === 1;
    return {
      id: `runs-${newest.watch}-${word}`,
      tone: "fail" as const,
      subject: isOne ? `Run ${newest.watch}:${newest.id}` : `Watch ${newest.watch}`,
      says: isOne ? `It ${word}.` : `${atLeast(runs.length, failedRuns.length)} runs ${word} within the hour.`,
      why: newest.reason ?? "",
      path: isOne ? `/runs/${newest.task_id}` : `/runs?state=failed&watch=${encodeURIComponent(newest.watch)}`,
      since: Math.max(...runs.map((run) => ms(run.ended_at ?? run.created_at))),
      weight: 62,
    };
  });
}

function atLeast(value: number, read: number): string {
  return read >= READ ? `${value}+` : String(value);
}

function parkedRuns({ liveRuns }: Observed): Concern[] {
  const groups = new Map<string, RunItem[]>();
  for (const run of liveRuns) if (run.phase === "needs_code") groups.set(run.watch, [...(groups.get(run.watch) ?? []), run]);
  return [...groups].map(([watch, runs]) => ({
    id: `parked-${watch}`,
    tone: "warn",
    subject: `Watch ${watch}`,
    says: `${counted(runs.length, "run is", "runs are")} parked: no worker has the code.`,
    why: runs[0]?.reason ?? "",
    path: `/runs?state=queued&watch=${encodeURIComponent(watch)}`,
    since: 0,
    weight: 57,
  }));
}

function tables({ tables }: Observed): Concern[] {
  return tables.flatMap(({ name, poller }) =>
    poller === null || poller.healthy
      ? []
      : {
          id: `table-${name}`,
          tone: "fail" as const,
          subject: `Table ${name}`,
          says: poller.consecutive_errors > 0 ? `Its poller failed ${counted(poller.consecutive_errors, "time")} in a row.` : "Its poller does not run as it should.",
          why: poller.last_error ?? "",
          path: `/tables/${encodeURIComponent(name)}`,
          since: 0,
          weight: 68,
        },
  );
}

function schedules({ schedules, workers }: Observed): Concern[] {
  // Without any worker that is the one concern.
  if (!workers.some((worker) => worker.is_alive && !worker.table)) return [];
  return schedules
    .filter((one) => !one.is_registered)
    .map(({ name, job }) => ({
      id: `schedule-${name}`,
      tone: "warn",
      subject: `Schedule ${name}`,
      says: `No live worker has it, so ${job} is not enqueued.`,
      why: "Start a worker whose program registers it. After an hour the schedule is removed.",
      path: `/schedules?q=${encodeURIComponent(name)}`,
      since: 0,
      weight: 52,
    }));
}

function unread({ unread }: Observed): Concern[] {
  return unread.map(({ name, path, why }) => ({
    id: `unread-${name}`,
    tone: "warn",
    subject: name,
    says: "Not known: this list could not be read to its end.",
    why,
    path,
    since: 0,
    weight: 90,
  }));
}

function loops({ loops }: Observed): Concern[] {
  return loops
    .filter((loop) => loop.is_alive && (loop.failures >= LOOP_FAILURES || loop.phase === "open"))
    .map((loop) => ({
      id: `loop-${loop.name}-${loop.worker ?? ""}`,
      tone: "warn" as const,
      subject: `Loop ${loop.name}`,
      says: `Failed ${loop.failures} times in a row; backs off ×${loop.multiplier}.`,
      why: loop.last_error ?? "",
      path: `/loops?q=${encodeURIComponent(loop.name)}`,
      since: loop.last_run_at === null ? 0 : ms(loop.last_run_at),
      weight: 45,
    }));
}
