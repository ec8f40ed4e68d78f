/**
 * The server's clock, as this browser knows it. Countdowns and ages follow it, so a browser with a wrong clock
 * shows the same as any other.
 *
 * It runs on the monotonic clock of the page: setting the computer's clock moves nothing.
 */

const RESYNC_MS = 60_000;

class Clock {
  /** Milliseconds since the epoch, once a second; reactive. */
  now = $state(Date.now());
  #ahead = Date.now() - performance.now();
  #bestRoundTrip = Number.POSITIVE_INFINITY;
  #syncedAt = Number.NEGATIVE_INFINITY;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Milliseconds since the epoch, exactly now; not reactive. */
  exact(): number {
    return performance.now() + this.#ahead;
  }

  /** Take the `Everpoll-Time` of an answer. Of several answers the quickest one knows best. */
  sync(header: string | null, roundTripMs: number): void {
    const serverMs = header === null ? Number.NaN : Number(header) * 1000;
    if (!Number.isFinite(serverMs)) return;
    const here = performance.now();
    const ahead = serverMs + roundTripMs / 2 - here;
    const isOld = here - this.#syncedAt > RESYNC_MS;
    const jumped = Math.abs(ahead - this.#ahead) > roundTripMs / 2 + 1000;
    if (!isOld && !jumped && roundTripMs > this.#bestRoundTrip) return;
    this.#ahead = ahead;
    this.#bestRoundTrip = roundTripMs;
    this.#syncedAt = here;
    if (jumped) this.now = this.exact();
  }

  start(): void {
    this.stop();
    this.now = this.exact();
    const untilNextSecond = 1000 - (this.now % 1000);
    this.#timer = setTimeout(() => this.start(), untilNextSecond + 5);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

export const clock = new Clock();
