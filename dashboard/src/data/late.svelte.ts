/** Why a task that is due has not begun, as far as its queue and the workers tell. */

import { clock } from "./clock.svelte.ts";
import { type Resource, resource } from "./resource.svelte.ts";
import type { JobItem, Page, QueueItem, WorkerItem } from "./shapes.ts";
import { ms } from "./times.ts";

/** The queue of the looks at services. */
export const CHECKS = "everpoll.checks";
/** Less is "due now". */
const LATE_MS = 3000;

export class Lateness {
  readonly queues: Resource<Page<QueueItem>>;
  readonly workers: Resource<Page<WorkerItem>>;

  /** Call while a component begins. It reads workers while `isAsked` says so; queues, too, or always for views that list them. */
  constructor(isAsked: () => boolean = () => true, readsQueues: () => boolean = isAsked) {
    this.queues = resource(() => (readsQueues() ? "/api/queues" : null), { topics: ["queues"], restMs: 2000 });
    this.workers = resource(() => (isAsked() ? "/api/workers" : null), { topics: ["workers"], restMs: 2000 });
  }

  /** Return the live workers that serve a queue; null: any queue but that of the looks at services. */
  serving(queue: string | null): WorkerItem[] {
    const serves = (name: string): boolean => (queue === null ? name !== CHECKS : name === queue);
    return this.workers.data?.items.filter((one) => one.is_alive && one.queues.some(serves)) ?? [];
  }

  /** Return what holds the tasks of a queue that are due; "" for unknown causes. */
  cause(queue: string | null): string {
    if (this.queues.data?.items.some((one) => one.name === queue && one.paused !== null)) return "the queue is paused";
    const workers = this.workers.data?.items;
    if (workers === undefined) return "";
    const serving = this.serving(queue);
    if (serving.length === 0) return workers.some((one) => one.is_alive) ? "no live worker serves the queue" : "no worker is alive";
    return serving.every((one) => one.running >= one.slots) ? "all slots are full" : "";
  }

  /** Return why it is late what was due at an instant; "" if it is not late. */
  of(at: string | null, queue: string | null): string {
    return at === null || clock.now - ms(at) < LATE_MS ? "" : this.cause(queue);
  }

  ofJob(job: JobItem): string {
    return this.cause(job.queue) || (job.limit === null ? "" : "its limit may hold it");
  }
}
