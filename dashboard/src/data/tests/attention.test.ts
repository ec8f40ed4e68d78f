/** The overview says "All is well" only where nothing needs a person: a case for each thing that does. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Observed, READ, concerns } from "../attention.ts";
import type { JobItem, QueueItem, RunItem, ScheduleItem, TableItem, WorkerItem } from "../shapes.ts";

const NOW = Date.parse("2026-01-02T03:00:00Z");
const before = (seconds: number): string => new Date(NOW - seconds * 1000).toISOString();
const worker = { incarnation: "1", label: "w", is_alive: true, queues: ["default"], slots: 2, running: 0, stopped_at: null, beat_at: before(1) } as WorkerItem;
const queue: QueueItem = { name: "default", ready: 0, waiting: 0, running: 0, limited: 0, blocked: 0, oldest_due_at: null, paused: null };
const well: Observed = {
  workers: [worker],
  queues: [queue],
  services: [],
  incidents: [],
  roots: new Map(),
  loops: [],
  schedules: [{ name: "close", job: "close_day", is_registered: true } as ScheduleItem],
  tables: [{ name: "orders", poller: { healthy: true, consecutive_errors: 0, last_error: null } } as TableItem],
  failedJobs: [],
  failedRuns: [],
  liveRuns: [{ id: "1", watch: "export", phase: "looking" } as RunItem],
  unread: [],
  nowMs: NOW,
};
const failedJob = { id: 7, name: "charge", state: "failed", error: { type: "ValueError", error: "no" }, created_at: before(7200), ended_at: before(60) } as JobItem;
const failedRun = { id: "1", watch: "export", task_id: 9, outcome: "failed", reason: "rejected", created_at: before(7200), ended_at: before(60) } as RunItem;

function says(change: Partial<Observed>): string[] {
  return concerns({ ...well, ...change }).map((one) => `${one.subject}: ${one.says} ${one.why}`.trim());
}

test("nothing needs attention where all is well", () => {
  assert.deepEqual(says({}), []);
});

const CASES: [string, Partial<Observed>, RegExp][] = [
  ["a list that could not be read", { unread: [{ name: "Loops", path: "/loops", why: "busy" }] }, /^Loops: Not known.* busy$/],
  ["the poller of a table fails", { tables: [{ name: "orders", poller: { healthy: false, consecutive_errors: 3, last_error: "gone" } } as TableItem] }, /^Table orders: Its poller failed 3 times in a row\. gone$/],
  ["a parked run", { liveRuns: [{ id: "1", watch: "export", phase: "needs_code", reason: "unknown step" } as RunItem] }, /^Watch export: 1 run is parked.* unknown step$/],
  ["a schedule that no live worker has", { schedules: [{ name: "close", job: "close_day", is_registered: false } as ScheduleItem] }, /^Schedule close: No live worker has it, so close_day is not enqueued\./],
  ["a job that was enqueued long before it failed", { failedJobs: [failedJob] }, /^Job charge: 1 failed within the hour\. ValueError: no$/],
  ["a run that began long before it failed", { failedRuns: [failedRun] }, /^Run export:1: It failed\. rejected$/],
  ["limited jobs on a paused queue", { queues: [{ ...queue, limited: 4, paused: { reason: "", by: "ada", at: before(9) } }] }, /^Queue default: Paused, and 4 tasks wait\./],
  ["limited jobs without a worker", { workers: [], queues: [{ ...queue, limited: 2 }], schedules: [] }, /^Workers: No worker is alive, and 2 tasks wait\./],
];

for (const [name, change, wanted] of CASES) {
  test(name, () => {
    const found = says(change);
    assert.equal(found.length, 1, found.join("\n"));
    assert.match(found[0] ?? "", wanted);
  });
}

test("as many as were read means: there may be more", () => {
  assert.match(says({ failedJobs: Array.from({ length: READ }, () => failedJob) })[0] ?? "", /: 200\+ failed/);
  assert.match(says({ failedRuns: Array.from({ length: READ }, () => failedRun) })[0] ?? "", /: 200\+ runs failed/);
});

test("without any worker, that is the concern, and not each of its schedules", () => {
  const found = says({ workers: [], queues: [{ ...queue, ready: 1 }], schedules: [{ name: "close", job: "j", is_registered: false } as ScheduleItem] });
  assert.equal(found.length, 1, found.join("\n"));
});
