/** Pausing and resuming a queue. */

import { notices } from "../app/notices.svelte.ts";
import { carryOut } from "./actions.ts";
import { segment } from "./api.ts";
import type { QueueItem } from "./shapes.ts";

const events = (name: string): { text: string; path: string } => ({ text: "See the event", path: `/events?kind=queue&name=${segment(name)}` });

/** Ask for a reason, then pause. */
export async function pauseQueue(name: string): Promise<QueueItem | null> {
  const answer = await notices.ask({
    title: `Pause queue ${name}?`,
    says: ["No worker of the fleet takes tasks from it until it is resumed. Running tasks continue."],
    action: "Pause",
    asksReason: true,
  });
  if (answer === null) return null;
  return carryOut<QueueItem>({
    path: `/api/queues/${segment(name)}/pause`,
    body: { reason: answer.reason },
    done: () => ({ text: `Confirmed: queue ${name} is paused.`, link: events(name) }),
  });
}

export function resumeQueue(name: string): Promise<QueueItem | null> {
  return carryOut<QueueItem>({
    path: `/api/queues/${segment(name)}/resume`,
    done: () => ({ text: `Confirmed: queue ${name} is resumed.`, link: events(name) }),
  });
}
