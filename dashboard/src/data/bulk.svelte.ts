/**
 * A bulk action: a dry run first, then the order with the instant of the dry run, so that nothing is touched that the
 * dry run did not count. Progress comes from the durable log.
 */

import { openStream, send } from "./api.ts";
import { readFrames } from "./frames.ts";
import { live } from "./live.svelte.ts";
import type { BulkAnswer } from "./shapes.ts";

export type BulkAction = "redrive" | "cancel" | "delete";
/** Jobs by their ids, or by the filters of the list. */
export type BulkTarget = { ids: string[] } | { filter: Record<string, string | boolean> };

export class Bulk {
  readonly action: BulkAction;
  dryRun = $state.raw<BulkAnswer | null>(null);
  answer = $state.raw<BulkAnswer | null>(null);
  /** Jobs changed so far, while the order goes on. */
  moved = $state(0);
  isRunning = $state(false);
  error = $state.raw<Error | null>(null);
  /** The dry run has ended. */
  readonly ready: Promise<void>;
  #target: BulkTarget;

  constructor(action: BulkAction, target: BulkTarget) {
    this.action = action;
    this.#target = target;
    this.ready = this.#attempt(async () => {
      this.dryRun = await send<BulkAnswer>("POST", "/api/jobs/bulk", this.#body(true, null));
    });
  }

  /** Carry out what the dry run showed. */
  async run(): Promise<void> {
    const asOf = this.dryRun?.as_of;
    if (asOf === undefined || this.isRunning) return;
    this.isRunning = true;
    const log = new AbortController();
    await this.#attempt(async () => {
      // The log is opened first: an order that ends at once would have ended before anyone listened.
      const stream = await openStream("/api/events", log.signal);
      let id: string | null = null;
      const early: { key: string; body: Record<string, unknown> }[] = [];
      const ended = readFrames(stream, (frame) => {
        const event = JSON.parse(frame.data) as { kind?: string; key?: string; body?: Record<string, unknown> };
        if (event.kind !== "bulk" || event.key === undefined || event.body === undefined) return;
        if (id === null) early.push({ key: event.key, body: event.body });
        else if (event.key === id) this.#progress(event.body);
      }).catch(() => undefined);
      const answer = await send<BulkAnswer>("POST", "/api/jobs/bulk", this.#body(false, asOf));
      id = answer.id;
      this.answer = answer;
      this.moved = answer.moved;
      for (const one of early) if (one.key === id) this.#progress(one.body);
      if (!this.answer.is_done) await ended;
    });
    log.abort();
    this.isRunning = false;
    live.refresh();
  }

  #progress(body: Record<string, unknown>): void {
    const moved = Number(body["moved"] ?? 0);
    this.moved = Math.max(this.moved, moved);
    if (body["what"] === "finished" && this.answer !== null && !this.answer.is_done) {
      this.answer = { ...this.answer, moved, skipped: Number(body["skipped"] ?? 0), matched: Number(body["matched"] ?? 0), is_done: true };
      this.isRunning = false;
    }
  }

  async #attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.error = error instanceof Error ? error : new Error(String(error));
    }
  }

  /** The ids are written as they are: a number of JavaScript cannot hold all of them. */
  #body(isDry: boolean, asOf: string | null): string {
    const target = this.#target;
    const filter = "ids" in target ? `{"ids":[${target.ids.join(",")}]}` : JSON.stringify(target.filter);
    const when = asOf === null ? "" : `,"as_of":${JSON.stringify(asOf)}`;
    return `{"action":${JSON.stringify(this.action)},"filter":${filter},"dry_run":${isDry}${when}}`;
  }
}
