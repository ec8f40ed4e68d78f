/**
 * The live layer: when data is read again, and how fresh the page is.
 *
 *     hints of /api/changes ──▶ resources of that topic are read again, each at most once a second, 4 reads a second in all
 *     a read failed          ──▶ it is made again after a second, then less and less often: no hint may come for it
 *     no hint                ──▶ the refresh loop reads everything: every 60 s beside a stream, every 10 s without one
 *     hidden or paused       ──▶ no request; the stream is closed; shown again: the stream, then one refresh
 *
 * A hint that is lost is harmless: the loop is the safety net. A refresh waits for the stream that is being opened:
 * read before it, everything would be read again for its first hints.
 */

import { ApiError, openStream } from "./api.ts";
import { clock } from "./clock.svelte.ts";
import { type Frame, readFrames } from "./frames.ts";
import { type RefreshLoop, refreshLoop } from "./refresh_loop.ts";

export type Topic = "jobs" | "runs" | "services" | "incidents" | "loops" | "workers" | "queues" | "events";
export type Freshness = "live" | "paused" | "stale" | "disconnected";

/** A thing that the page shows and that can be read again. */
export interface Readable {
  readonly topics: readonly Topic[];
  readonly restMs: number;
  readonly lastStartedAt: number;
  /** The server's clock when the request of the shown data began; hints up to then tell nothing new. */
  readonly readAtMs: number;
  readonly isReading: boolean;
  /** Whether a read that began after this instant of the monotonic clock has been answered. */
  hasReadSince(instant: number): boolean;
  readAgain(): Promise<boolean>;
}

const GAP_MS = 250;
const SILENCE_MS = 45_000;
const HIDE_GRACE_MS = 500;
const LOST_GRACE_MS = 5_000;
const DISCONNECTED_MS = 8_000;
const STALE_AFTER_MS = { stream: 45_000, polling: 30_000 };
/** What was read so lately is not read again when the stream opens: its first hints tell what has changed since. */
const LATELY_MS = 2_000;
/** How long a refresh waits for a stream that is being opened. */
const OPENING_MS = 1_000;
const RECONNECT_MS = [300, 1000, 2000, 3000, 5000];
const RETRY_MS = [1000, 2000, 5000, 10_000];

function later(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

class Live {
  isStreaming = $state(false);
  isPaused = $state(false);
  isHidden = $state(document.hidden);
  /** On the monotonic clock: when the server was heard last, and since when it has not answered. */
  heardAt = $state(performance.now());
  failingSince = $state<number | null>(null);
  #readables = new Set<Readable>();
  /** What hints asked for, and when, on the monotonic clock. */
  #wanted = new Map<Readable, number>();
  /** Reads that have failed: how often in a row, and the timer of the next. */
  #failures = new Map<Readable, { times: number; retry: ReturnType<typeof setTimeout> }>();
  #pump: ReturnType<typeof setTimeout> | undefined;
  #lastReadAt = Number.NEGATIVE_INFINITY;
  #stream: AbortController | null = null;
  #opening: Promise<void> = Promise.resolve();
  #reconnect: ReturnType<typeof setTimeout> | undefined;
  #attempts = 0;
  #timers: Record<"silence" | "hide" | "lost", ReturnType<typeof setTimeout> | undefined> = {
    silence: undefined,
    hide: undefined,
    lost: undefined,
  };
  #loop: RefreshLoop | null = null;

  get freshness(): Freshness {
    if (this.isPaused) return "paused";
    const ageMs = this.ageMs;
    if (this.failingSince !== null) return ageMs > DISCONNECTED_MS && !this.isStreaming ? "disconnected" : "stale";
    return ageMs > (this.isStreaming ? STALE_AFTER_MS.stream : STALE_AFTER_MS.polling) ? "stale" : "live";
  }

  /** How long ago the shown data were known to be right; reactive, once a second. */
  get ageMs(): number {
    void clock.now;
    return Math.max(0, performance.now() - (this.isUnreadable ? (this.failingSince ?? this.heardAt) : this.heardAt));
  }

  /** Whether the server sends its stream, and answers no request for data: its database is away. */
  get isUnreadable(): boolean {
    return this.isStreaming && this.failingSince !== null;
  }

  start(): () => void {
    // Frozen pages keep their connections, and run no timers: closed at once, without the grace of hiding.
    const onPageHide = (): void => this.#close();
    addEventListener("pagehide", onPageHide);
    clock.start();
    this.#loop = refreshLoop({
      readAll: () => this.#readAll(),
      onHidden: () => this.#hide(),
      onShown: () => this.#show(),
    });
    this.#connect();
    return () => {
      removeEventListener("pagehide", onPageHide);
      this.#close();
      this.#loop?.close();
      clock.stop();
    };
  }

  add(readable: Readable): () => void {
    this.#readables.add(readable);
    return () => {
      this.#readables.delete(readable);
      this.#wanted.delete(readable);
      this.#forgetFailures(readable);
    };
  }

  togglePause(): void {
    this.isPaused = !this.isPaused;
    if (this.isPaused) {
      this.#close();
      this.#loop?.pause();
    } else {
      this.#loop?.resume();
      this.#goOn();
    }
  }

  /** Read everything that is shown, soon. */
  refresh(): void {
    for (const readable of this.#readables) this.#want(readable);
  }

  /** The server answered. */
  heard(): void {
    this.heardAt = performance.now();
    this.failingSince = null;
  }

  /** A read was answered. */
  hasRead(readable: Readable): void {
    this.#forgetFailures(readable);
    this.heard();
  }

  /** A read failed. Where another may succeed, it is made soon: the refresh loop may be a minute away. */
  readFailed(readable: Readable, error: unknown): void {
    this.failed(error);
    const times = this.#failures.get(readable)?.times ?? 0;
    this.#forgetFailures(readable);
    if (error instanceof ApiError && !error.isUnreachable && error.status < 500) return;
    const wait = RETRY_MS[Math.min(times, RETRY_MS.length - 1)] ?? 10_000;
    const retry = setTimeout(() => this.#want(readable), wait * (0.9 + Math.random() * 0.2));
    this.#failures.set(readable, { times: times + 1, retry });
  }

  /** The server did not answer, or its database did not. */
  failed(error: unknown): void {
    if (!(error instanceof ApiError) || error.isUnreachable || error.status >= 502) {
      this.failingSince ??= performance.now();
    } else this.heard();
  }

  #forgetFailures(readable: Readable): void {
    clearTimeout(this.#failures.get(readable)?.retry);
    this.#failures.delete(readable);
  }

  #isResting(): boolean {
    return this.isPaused || this.isHidden;
  }

  #hide(): void {
    this.isHidden = true;
    clock.stop();
    clearTimeout(this.#pump);
    this.#pump = undefined;
    this.#timers.hide = setTimeout(() => this.#close(), HIDE_GRACE_MS);
  }

  #show(): void {
    clearTimeout(this.#timers.hide);
    this.isHidden = false;
    clock.start();
    this.#goOn();
  }

  /** Open the stream and read everything once; where the stream has stayed open, nothing was missed. */
  #goOn(): void {
    if (this.#isResting()) return;
    if (this.#stream !== null) {
      this.#pumpSoon();
      return;
    }
    // Asked for before; the refresh reads that, too.
    this.#wanted.clear();
    this.#connect();
    this.#loop?.now();
  }

  #close(): void {
    clearTimeout(this.#reconnect);
    clearTimeout(this.#timers.silence);
    clearTimeout(this.#timers.lost);
    this.#stream?.abort();
    this.#stream = null;
    this.isStreaming = false;
    this.#loop?.pushDown();
  }

  #connect(): void {
    clearTimeout(this.#reconnect);
    if (this.#isResting() || this.#stream !== null) return;
    const stream = new AbortController();
    this.#stream = stream;
    let settle = (): void => undefined;
    this.#opening = Promise.race([new Promise<void>((resolve) => (settle = resolve)), later(OPENING_MS)]);
    void this.#follow(stream, settle)
      .catch((error: unknown) => {
        if (!stream.signal.aborted) this.failed(error);
      })
      .finally(() => {
        settle();
        if (this.#stream === stream) this.#lost();
      });
  }

  async #follow(stream: AbortController, settle: () => void): Promise<void> {
    const answer = await openStream("/api/changes", stream.signal);
    this.#expectBytes(stream);
    await readFrames(
      answer,
      (frame) => {
        if (!this.isStreaming) this.#opened();
        settle();
        this.#take(frame);
      },
      () => {
        // A stream that goes on does not say that data can be read again: only an answer does.
        this.heardAt = performance.now();
        this.#expectBytes(stream);
      },
    );
  }

  /** The first hint has come: whatever is read from now on is not older than it. */
  #opened(): void {
    this.#attempts = 0;
    this.isStreaming = true;
    clearTimeout(this.#timers.lost);
    this.heard();
    // Reads everything once: changes while there was no stream were not announced.
    this.#loop?.pushUp();
  }

  #expectBytes(stream: AbortController): void {
    clearTimeout(this.#timers.silence);
    this.#timers.silence = setTimeout(() => {
      stream.abort();
      if (this.#stream === stream) this.#lost();
    }, SILENCE_MS);
  }

  #lost(): void {
    this.#stream = null;
    clearTimeout(this.#timers.silence);
    if (this.isStreaming) this.#timers.lost = setTimeout(() => this.#loop?.pushDown(), LOST_GRACE_MS);
    this.isStreaming = false;
    if (this.#isResting()) return;
    const wait = RECONNECT_MS[Math.min(this.#attempts, RECONNECT_MS.length - 1)] ?? 5000;
    this.#attempts += 1;
    this.#reconnect = setTimeout(() => this.#connect(), wait * (0.9 + Math.random() * 0.2));
  }

  #take(frame: Frame): void {
    if (frame.event !== "change") return;
    const hint = JSON.parse(frame.data) as { topic?: Topic; version?: number };
    for (const readable of this.#readables) {
      if (hint.topic === undefined || !readable.topics.includes(hint.topic)) continue;
      if ((hint.version ?? Number.POSITIVE_INFINITY) > readable.readAtMs) this.#want(readable);
    }
  }

  #want(readable: Readable): void {
    this.#wanted.set(readable, performance.now());
    this.#pumpSoon();
  }

  #pumpSoon(): void {
    clearTimeout(this.#pump);
    this.#pump = undefined;
    if (this.#isResting() || this.#wanted.size === 0) return;
    const now = performance.now();
    let wait = Number.POSITIVE_INFINITY;
    for (const one of this.#wanted.keys()) wait = Math.min(wait, this.#waitFor(one, now));
    this.#pump = setTimeout(() => {
      this.#pump = undefined;
      this.#readNext();
    }, wait);
  }

  #waitFor(one: Readable, now: number): number {
    const own = one.isReading ? GAP_MS : one.lastStartedAt + one.restMs - now;
    return Math.max(0, own, this.#lastReadAt + GAP_MS - now);
  }

  #readNext(): void {
    if (this.#isResting()) return;
    const now = performance.now();
    for (const [one, wantedAt] of this.#wanted) {
      if (one.hasReadSince(wantedAt)) {
        this.#wanted.delete(one);
        continue;
      }
      if (one.isReading || this.#waitFor(one, now) > 1) continue;
      // To the end of the line: a map keeps the order of insertion, so each has its turn.
      this.#wanted.delete(one);
      this.#lastReadAt = now;
      void one.readAgain();
      break;
    }
    this.#pumpSoon();
  }

  /** One turn of the refresh loop: false if the server did not answer. */
  async #readAll(): Promise<boolean> {
    let isWell = true;
    await this.#opening;
    for (const one of [...this.#readables]) {
      if (this.#isResting()) return true;
      const isLate = performance.now() - one.lastStartedAt > LATELY_MS;
      if (isLate && !one.isReading) isWell = (await one.readAgain()) && isWell;
    }
    return isWell;
  }
}

export const live = new Live();
