/** What a loop takes from its surroundings: time, timers, chance and a log. Tests give it virtual ones. */

export interface Clock {
  /** Seconds of a clock that never goes back: decisions are made on it. */
  now(): number;
  /** Milliseconds since 1970: for display. */
  wall(): number;
  /** Call back after this many milliseconds. Return what cancels it. */
  timer(callback: () => void, delayMs: number): () => void;
}

export interface Log {
  warn(message: string, ...more: unknown[]): void;
  error(message: string, ...more: unknown[]): void;
}

/** The clock of browsers and of Node. */
export const SYSTEM_CLOCK: Clock = {
  now: () => performance.now() / 1000,
  wall: () => Date.now(),
  timer(callback, delayMs) {
    const handle = setTimeout(callback, delayMs);
    return () => clearTimeout(handle);
  },
};
