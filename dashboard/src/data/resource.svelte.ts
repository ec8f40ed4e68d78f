/**
 * A resource: one GET that a view shows, read again when its topics change.
 *
 * Promises: an unchanged answer (304) changes nothing on the page. Equal answers are not even compared: the server
 * does that. A read that failed leaves the last data in place, with the error beside it. Data of another path is
 * never shown: a change of the path empties it, unless `keeps` says that it is the same list in another cut.
 */

import { untrack } from "svelte";
import { ApiError, read } from "./api.ts";
import { clock } from "./clock.svelte.ts";
import { type Readable, type Topic, live } from "./live.svelte.ts";

const LOADING_AFTER_MS = 150;
const KEPT = 30;

interface Kept {
  value: unknown;
  tag: string | null;
}
const kept = new Map<string, Kept>();

export interface ResourceOptions {
  /** The hints after which it is read again. */
  topics?: readonly Topic[];
  /** The shortest time between two reads that hints ask for. */
  restMs?: number;
  /** Show the data of the path before until that of the new one is there. */
  keeps?: boolean;
}

export class Resource<T> implements Readable {
  /** Undefined until the first answer. */
  data = $state.raw<T | undefined>(undefined);
  /** Why the last read failed. */
  error = $state.raw<ApiError | undefined>(undefined);
  /** No data yet, for longer than a moment. */
  isLoading = $state(false);
  /** There is nothing to read: its path is null. */
  isIdle = $state(true);
  /** The data is of the path before. */
  isOld = $state(false);
  readonly topics: readonly Topic[];
  readonly restMs: number;
  lastStartedAt = Number.NEGATIVE_INFINITY;
  readAtMs = Number.NEGATIVE_INFINITY;
  isReading = false;
  #answeredFrom = Number.NEGATIVE_INFINITY;
  /** The read that is under way, or was last. */
  reading: Promise<boolean> = Promise.resolve(true);
  #path: string | null = null;
  #tag: string | null = null;
  #request: AbortController | null = null;
  #slow: ReturnType<typeof setTimeout> | undefined;

  /** Call while a component begins; `path` may depend on reactive state, null reads nothing. */
  constructor(path: () => string | null, options: ResourceOptions = {}) {
    this.topics = options.topics ?? [];
    this.restMs = options.restMs ?? 1000;
    $effect(() => {
      const wanted = path();
      untrack(() => {
        if (wanted !== this.#path) this.#turnTo(wanted, options.keeps ?? false);
      });
    });
    $effect(() => live.add(this));
    $effect(() => () => this.#leave());
  }

  hasReadSince(instant: number): boolean {
    return this.#answeredFrom >= instant;
  }

  /** Read again now, whatever hints say; used after an action. */
  readAgain(): Promise<boolean> {
    this.reading = this.#read();
    return this.reading;
  }

  async #read(): Promise<boolean> {
    const path = this.#path;
    if (path === null) return true;
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    this.isReading = true;
    const startedAt = performance.now();
    this.lastStartedAt = startedAt;
    const beganAtMs = clock.exact();
    try {
      const answer = await read<T>(path, this.#tag, request.signal);
      if (request.signal.aborted) return true;
      live.hasRead(this);
      if (answer.kind === "fresh") this.#show(path, answer.value, answer.tag);
      this.error = undefined;
      this.isOld = false;
      this.readAtMs = beganAtMs;
      this.#answeredFrom = startedAt;
      return true;
    } catch (error) {
      if (request.signal.aborted) return true;
      live.readFailed(this, error);
      this.error = error instanceof ApiError ? error : new ApiError(0, "The answer could not be read.");
      return false;
    } finally {
      if (this.#request === request) {
        this.isReading = false;
        clearTimeout(this.#slow);
        this.isLoading = false;
      }
    }
  }

  /** Put an answer in place that an action brought. */
  take(value: T): void {
    this.data = value;
    this.#tag = null;
  }

  #show(path: string, value: T, tag: string | null): void {
    this.data = value;
    this.#tag = tag;
    kept.delete(path);
    kept.set(path, { value, tag });
    const oldest = kept.keys().next().value;
    if (kept.size > KEPT && oldest !== undefined) kept.delete(oldest);
  }

  #turnTo(path: string | null, keeps: boolean): void {
    this.#path = path;
    this.isIdle = path === null;
    this.error = undefined;
    const before = path === null ? undefined : kept.get(path);
    this.#tag = before?.tag ?? null;
    this.readAtMs = Number.NEGATIVE_INFINITY;
    if (before !== undefined) {
      this.data = before.value as T;
      this.isOld = false;
    } else if (keeps) this.isOld = this.data !== undefined;
    else this.data = undefined;
    clearTimeout(this.#slow);
    this.isLoading = false;
    if (path === null) {
      this.#request?.abort();
      return;
    }
    this.#slow = setTimeout(() => {
      this.isLoading = this.data === undefined || this.isOld;
    }, LOADING_AFTER_MS);
    void this.readAgain();
  }

  #leave(): void {
    this.#request?.abort();
    clearTimeout(this.#slow);
  }
}

/** Show a GET. Call while a component begins. */
export function resource<T>(path: () => string | null, options: ResourceOptions = {}): Resource<T> {
  return new Resource<T>(path, options);
}
