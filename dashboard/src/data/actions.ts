/** Actions: a change is asked for, then shown as confirmed or refused. Nothing is shown as done before it is. */

import { notices } from "../app/notices.svelte.ts";
import { ApiError, send } from "./api.ts";
import { live } from "./live.svelte.ts";

export interface Order<T> {
  method?: "POST" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  /** What to say when the server has confirmed it, and where its event is. */
  done: (answer: T) => { text: string; link?: { text: string; path: string } };
}

/** Send an order; return the answer, or null if the server refused it. The reader sees the reason either way. */
export async function carryOut<T>(order: Order<T>): Promise<T | null> {
  try {
    const answer = await send<T>(order.method ?? "POST", order.path, order.body);
    live.heard();
    const { text, link } = order.done(answer);
    notices.tell("ok", text, link);
    live.refresh();
    return answer;
  } catch (error) {
    live.failed(error);
    tellRefused(error);
    return null;
  }
}

/** Tell why an order was refused; a conflict names the job that stands in the way. */
export function tellRefused(error: unknown): void {
  if (!(error instanceof ApiError)) throw error;
  const link = error.holder === null ? undefined : { text: `Open job ${error.holder}`, path: `/jobs/${error.holder}` };
  const text = error.isUnreachable ? "The server does not answer: nothing was changed, as far as this page knows." : error.message;
  notices.tell("fail", text, link);
}
