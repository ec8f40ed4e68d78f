/** The loop that reads everything again where no hint asks for it: every 10 s, or every 60 s beside a stream. */

import { Loops, followPage } from "../loop/index.ts";

export interface RefreshLoop {
  now(): void;
  pushUp(): void;
  pushDown(): void;
  pause(): void;
  resume(): void;
  close(): void;
}

export interface RefreshOptions {
  /** Read everything; false if the server did not answer. */
  readAll: () => Promise<boolean>;
  onHidden: () => void;
  onShown: () => void;
}

/** Start the loop; it rests while the page is hidden. */
export function refreshLoop(options: RefreshOptions): RefreshLoop {
  const loops = new Loops();
  // Failures are shown by the chip, and the stream tries to come back by itself: a short backoff is enough.
  const loop = loops.add("refresh", options.readAll, { every: "10s", safetyEvery: "60s", cap: 2 });
  loops.start();
  const unfollow = followPage(loops, { onHidden: options.onHidden, onShown: options.onShown });
  return {
    now: () => void loop.trigger(),
    pushUp: () => loop.pushConnected(),
    pushDown: () => loop.pushLost(),
    pause: () => loop.pause("operator"),
    resume: () => loop.resume("operator"),
    close: () => {
      unfollow();
      void loops.close();
    },
  };
}
