/**
 * A list of the API on the page: filters from the URL, rows that stay still, more rows on demand.
 *
 * Up to 200 rows are read again when something changes. Rows further down are added by the cursor and stay as they
 * were read. The entry of the history remembers how many rows there were.
 */

import { tick, untrack } from "svelte";
import { router } from "../app/router.svelte.ts";
import { readOnce, withQuery } from "./api.ts";
import type { Topic } from "./live.svelte.ts";
import { type Resource, resource } from "./resource.svelte.ts";
import { Rows } from "./rows.svelte.ts";
import type { Page } from "./shapes.ts";

const PAGE = 50;
const KEPT_FRESH = 200;

export interface ListingOptions<T> {
  path: string;
  /** What to ask for; reactive. Null reads nothing. */
  query: () => Record<string, string | boolean | null>;
  id: (item: T) => string;
  topics: readonly Topic[];
  /** How many rows to read at first; 50 by default. */
  first?: number;
  /** The order of the rows that are loaded, for lists without a choice of order in the API; reactive. */
  order?: () => { name: string; compare: (one: T, other: T) => number };
}

export class Listing<T> {
  readonly rows: Rows<T>;
  readonly source: Resource<Page<T>>;
  #options: ListingOptions<T>;
  #limit = $state(PAGE);
  #shownFor: string | null = null;

  /** Call while a component begins. */
  constructor(options: ListingOptions<T>) {
    this.#options = options;
    this.rows = new Rows(options.id);
    this.#limit = Math.min(KEPT_FRESH, Math.max(options.first ?? PAGE, router.place.rows ?? 0));
    let asked = "";
    const path = (): string => {
      const filters = withQuery(options.path, options.query());
      if (filters !== asked) {
        const isFirst = asked === "";
        asked = filters;
        if (!isFirst) untrack(() => (this.#limit = options.first ?? PAGE));
      }
      return withQuery(options.path, { ...options.query(), limit: this.#limit });
    };
    this.source = resource<Page<T>>(path, { topics: options.topics, keeps: true });
    $effect(() => {
      const page = this.source.data;
      const isOld = this.source.isOld;
      const order = options.order?.();
      const filters = `${withQuery(options.path, options.query())} ${order?.name ?? ""}`;
      if (page === undefined || isOld) return;
      const ordered = order === undefined ? page : { ...page, items: [...page.items].sort(order.compare) };
      untrack(() => this.#take(ordered, filters));
    });
  }

  /** Show the next rows. */
  async more(): Promise<void> {
    if (this.#limit < KEPT_FRESH) {
      this.#limit += PAGE;
      await tick();
      await this.source.reading;
    } else await this.#append();
    router.remember({ rows: this.rows.shown.length });
  }

  #take(page: Page<T>, filters: string): void {
    if (this.#shownFor === filters) {
      this.rows.update(page);
      return;
    }
    this.#shownFor = filters;
    this.rows.replace(page);
    const wanted = router.place.rows ?? 0;
    if (wanted > KEPT_FRESH) void this.#appendUntil(Math.min(wanted, 5000));
  }

  async #appendUntil(wanted: number): Promise<void> {
    while (this.rows.after !== null && this.rows.shown.length < wanted) if (!(await this.#append())) return;
  }

  async #append(): Promise<boolean> {
    const filters = this.#shownFor;
    const after = this.rows.after;
    if (after === null) return false;
    const page = await readOnce<Page<T>>(withQuery(this.#options.path, { ...this.#options.query(), limit: this.#options.first ?? PAGE, after }));
    if (this.#shownFor !== filters) return false;
    this.rows.append(page);
    return true;
  }
}

/** Show a list. Call while a component begins. */
export function listing<T>(options: ListingOptions<T>): Listing<T> {
  return new Listing(options);
}
