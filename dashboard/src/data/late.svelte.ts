/** Why a look is late, as far as the workers tell. */

import { clock } from "./clock.svelte.ts";
import { resource } from "./resource.svelte.ts";
import type { Page, WorkerItem } from "./shapes.ts";
import { ms } from "./times.ts";

const CHECKS = "everpoll.checks";
/** Less is "due now". */
const LATE_MS = 3000;

/** Return a function that tells why something is late that was due at an instant; "" if it is not, or for unknown causes. */
export function lateness(of: "runs" | "services"): (at: string | null) => string {
  const workers = resource<Page<WorkerItem>>(() => "/api/workers", { topics: ["workers"], restMs: 5000 });
  const cause = $derived.by(() => {
    if (workers.data === undefined) return "";
    const able = workers.data.items.filter((one) => one.is_alive && (one.table ?? null) === null && one.queues.some((name) => (name === CHECKS) === (of === "services")));
    if (able.length === 0) return "no worker is alive";
    return able.every((one) => one.running >= one.slots) ? "all slots of the workers are busy" : "";
  });
  return (at) => (at === null || clock.now - ms(at) < LATE_MS ? "" : cause);
}
