/**
 * Pauses loops while the page is hidden.
 *
 * Hiding counts at once. Showing counts after 300 ms, so that switching through tabs starts nothing. A page that the
 * browser puts into its back-forward cache (`pagehide`) or freezes counts as hidden: it would keep its connections, and
 * a browser has six of them per host.
 */

import type { Clock } from "./clock.ts";
import { SYSTEM_CLOCK } from "./clock.ts";
import type { Duration } from "./duration.ts";
import { seconds } from "./duration.ts";
import type { Loops } from "./loops.ts";

/** The part of a window that is needed. */
export interface PageWindow extends EventTarget {
  readonly document: EventTarget & { readonly visibilityState: DocumentVisibilityState };
}

export interface PageOptions {
  /** How long the page must be visible before it counts as shown. Default: 300 ms. */
  readonly debounce?: Duration;
  /** Called when the page is hidden: close streams here. */
  readonly onHidden?: () => void;
  /** Called when the page is shown again, before the loops resume: open streams here. */
  readonly onShown?: () => void;
  readonly clock?: Clock;
  readonly window?: PageWindow;
}

/** Pause the loops with the reason `hidden` while the page is hidden. Return what ends that. */
export function followPage(loops: Loops, options: PageOptions = {}): () => void {
  const page = options.window ?? window;
  const clock = options.clock ?? SYSTEM_CLOCK;
  const debounceMs = seconds(options.debounce ?? "300ms", "followPage: debounce") * 1000;
  const listening = new AbortController();
  let isHidden = false;
  let cancelShow: (() => void) | null = null;

  function hide(): void {
    cancelShow?.();
    cancelShow = null;
    if (isHidden) return;
    isHidden = true;
    loops.pause("hidden");
    options.onHidden?.();
  }

  function show(): void {
    if (!isHidden || cancelShow !== null) return;
    cancelShow = clock.timer(() => {
      cancelShow = null;
      isHidden = false;
      options.onShown?.();
      loops.resume("hidden");
    }, debounceMs);
  }

  function look(): void {
    if (page.document.visibilityState === "hidden") hide();
    else show();
  }

  const { signal } = listening;
  page.document.addEventListener("visibilitychange", look, { signal });
  page.document.addEventListener("freeze", hide, { signal });
  page.document.addEventListener("resume", look, { signal });
  page.addEventListener("pagehide", hide, { signal });
  page.addEventListener("pageshow", look, { signal });
  look();

  return () => {
    listening.abort();
    cancelShow?.();
    if (isHidden) loops.resume("hidden");
  };
}
