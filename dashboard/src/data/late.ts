/** Why a task that is due has not begun, in a few words. Pure. */

import type { QueueItem, WorkerItem } from "./shapes.ts";

/** Return the cause, as far as the queue and its workers show it; "" where they do not. */
export function lateBecause(name: string, queues: QueueItem[] | undefined, workers: WorkerItem[] | undefined): string {
  const queue = queues?.find((one) => one.name === name);
  if (queue !== undefined && queue.paused !== null) return "the queue is paused";
  if (workers === undefined) return "";
  const serving = workers.filter((one) => one.is_alive && one.queues.includes(name));
  if (serving.length === 0) return "no live worker serves the queue";
  return serving.every((one) => one.running >= one.slots) ? "all slots are full" : "";
}
