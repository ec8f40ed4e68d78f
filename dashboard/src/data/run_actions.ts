/** What an operator does to a run. */

import { notices } from "../app/notices.svelte.ts";
import { carryOut } from "./actions.ts";
import { segment } from "./api.ts";
import type { RunDetail, RunItem } from "./shapes.ts";

/** Return the name that the API and the URL know a run by. */
export const runKey = (run: RunItem): string => `${run.watch}:${run.id}`;
export const runPath = (run: RunItem): string => `/runs/${segment(runKey(run)).replaceAll("%3A", ":")}`;

function order(run: RunItem, action: string, body: unknown, text: string): Promise<RunDetail | null> {
  return carryOut<RunDetail>({
    path: `/api${runPath(run)}/${action}`,
    body,
    done: () => ({ text, link: { text: "See the event", path: `/events?task=${run.task_id}` } }),
  });
}

export function lookNow(run: RunItem): Promise<RunDetail | null> {
  return order(run, "look-now", undefined, `Confirmed: the next look of ${runKey(run)} is due now.`);
}

export function extend(run: RunItem, time: string, looks: number | null): Promise<RunDetail | null> {
  const more = [time, looks === null ? "" : `${looks} ${looks === 1 ? "look" : "looks"}`].filter((part) => part !== "").join(" and ");
  const body = { ...(time === "" ? {} : { time }), ...(looks === null ? {} : { looks }) };
  return order(run, "extend", body, `Confirmed: the budget of ${runKey(run)} has ${more} more.`);
}

/** Ask for a reason, then pause. */
export async function pauseRun(run: RunItem): Promise<RunDetail | null> {
  const answer = await notices.ask({
    title: `Pause run ${runKey(run)}?`,
    says: ["No worker looks at it until it is resumed, and its budget stands still. The remote operation continues."],
    action: "Pause",
    asksReason: true,
  });
  if (answer === null) return null;
  return order(run, "pause", { reason: answer.reason }, `Confirmed: ${runKey(run)} is paused.`);
}

export function resumeRun(run: RunItem): Promise<RunDetail | null> {
  return order(run, "resume", undefined, `Confirmed: the next look of ${runKey(run)} is due now.`);
}

/** Ask first; null: it was not canceled. */
export async function cancelRun(run: RunItem): Promise<RunDetail | null> {
  const answer = await notices.ask({
    title: `Cancel run ${runKey(run)}?`,
    says: ["Its worker cancels the remote operation, waits until it has ended, and cleans up."],
    action: "Cancel run",
    isDangerous: true,
    asksReason: true,
  });
  if (answer === null) return null;
  return order(run, "cancel", { reason: answer.reason }, `Cancel confirmed: ${runKey(run)} is being canceled.`);
}
