/**
 * The router: the URL is the state. A view reads `router.query` and writes with `setQuery`; defaults are left out.
 *
 * Choosing a filter pushes an entry of the history; typing replaces it. Each entry remembers how far the page was
 * scrolled and how many rows were loaded, so Back and reload show the same place.
 */

import { href, pathBelow } from "../base.ts";

export interface Place {
  scroll?: number;
  rows?: number;
}

class Router {
  /** Below the mount: "/jobs/7". */
  path = $state(pathBelow(location.pathname));
  query = $state.raw(new URLSearchParams(location.search));
  /** Grows with each step to another path; a view that is shown again begins anew. */
  visit = $state(0);
  /** What the present entry of the history remembers. */
  place: Place = (history.state as Place | null) ?? {};
  #leaving = new Set<() => void>();

  start(): () => void {
    history.scrollRestoration = "manual";
    const onPop = (): void => this.#arrive((history.state as Place | null) ?? {});
    const onClick = (event: MouseEvent): void => this.#follow(event);
    const onHide = (): void => this.remember({ scroll: scrollY });
    addEventListener("popstate", onPop);
    document.addEventListener("click", onClick);
    addEventListener("pagehide", onHide);
    this.#restoreScroll();
    return () => {
      removeEventListener("popstate", onPop);
      document.removeEventListener("click", onClick);
      removeEventListener("pagehide", onHide);
    };
  }

  /** Go to a path below the mount, such as "/jobs?state=failed". */
  go(to: string, options: { replace?: boolean } = {}): void {
    const address = href(to);
    if (options.replace) history.replaceState(this.place, "", address);
    else {
      this.remember({ scroll: scrollY });
      history.pushState({}, "", address);
    }
    this.#arrive(options.replace ? this.place : {});
  }

  /** Change parts of the query; null and "" remove one. */
  setQuery(changes: Record<string, string | null>, options: { replace?: boolean } = {}): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    if (text === this.query.toString()) return;
    const address = href(this.path) + (text === "" ? "" : `?${text}`);
    if (options.replace) history.replaceState(this.place, "", address);
    else {
      this.remember({ scroll: scrollY });
      this.place = {};
      history.pushState({}, "", address);
    }
    this.query = query;
  }

  get(name: string): string {
    return this.query.get(name) ?? "";
  }

  /** Keep something with the present entry of the history. */
  remember(more: Place): void {
    this.place = { ...this.place, ...more };
    history.replaceState(this.place, "", location.href);
  }

  /** Call when the page goes to another path; returns how to stop that. */
  onLeave(callback: () => void): () => void {
    this.#leaving.add(callback);
    return () => this.#leaving.delete(callback);
  }

  #arrive(place: Place): void {
    const path = pathBelow(location.pathname);
    const isElsewhere = path !== this.path;
    this.place = place;
    this.query = new URLSearchParams(location.search);
    if (isElsewhere) {
      for (const leave of this.#leaving) leave();
      this.path = path;
      this.visit += 1;
    }
    this.#restoreScroll();
  }

  /** Scroll to where the entry was left, as soon as the page is long enough. */
  #restoreScroll(): void {
    const wanted = this.place.scroll ?? 0;
    const began = performance.now();
    const place = this.place;
    const attempt = (): void => {
      if (this.place !== place && this.place.scroll !== wanted) return;
      scrollTo(0, wanted);
      if (Math.abs(scrollY - wanted) > 2 && performance.now() - began < 2000) requestAnimationFrame(attempt);
    };
    requestAnimationFrame(attempt);
  }

  #follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element | null)?.closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || link.target !== "" || link.hasAttribute("download")) return;
    if (link.dataset["outside"] !== undefined || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(href("/"))) return;
    event.preventDefault();
    this.go(pathBelow(link.pathname) + link.search);
  }
}

export const router = new Router();

/** Return the values of ":name" parts if the path fits the pattern, else null. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.replace(/\/+$/, "").split("/");
  if (path === "/") given.splice(0, given.length, "", "");
  if (wanted.length !== given.length) return null;
  const values: Record<string, string> = {};
  for (const [place, part] of wanted.entries()) {
    const found = given[place] ?? "";
    if (part.startsWith(":")) values[part.slice(1)] = decoded(found);
    else if (part !== found) return null;
  }
  return values;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
