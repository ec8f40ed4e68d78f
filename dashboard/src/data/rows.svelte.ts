/**
 * The rows of a list that does not move under the pointer.
 *
 *     first page ──▶ shown; a later answer ──▶ rows that are shown change in place, by id
 *                                          ├──▶ rows that are new wait behind "↑ n new"
 *                                          └──▶ rows that left the filter stay, marked, until the next refresh
 */

import type { Page } from "./shapes.ts";

export interface Row<T> {
  id: string;
  item: T;
  /** It is not in the list any more. */
  hasLeft: boolean;
}

export class Rows<T> {
  shown = $state.raw<Row<T>[]>([]);
  /** How many rows wait to be shown. */
  newCount = $state(0);
  after = $state<string | null>(null);
  searchedBackTo = $state<string | null>(null);
  #id: (item: T) => string;
  #waiting: Page<T> | null = null;

  constructor(id: (item: T) => string) {
    this.#id = id;
  }

  /** Show a page in place of everything. */
  replace(page: Page<T>): void {
    this.shown = page.items.map((item) => ({ id: this.#id(item), item, hasLeft: false }));
    this.#settle(page);
  }

  /** Take a newer answer for what is shown; `page` begins at the top of the list. */
  update(page: Page<T>): void {
    if (this.shown.length === 0) {
      this.replace(page);
      return;
    }
    const fresh = new Map(page.items.map((item) => [this.#id(item), item]));
    const ids = new Set(this.shown.map((row) => row.id));
    // Rows behind the last one of the answer are not part of it, so it does not say that they have left.
    const last = page.items.at(-1);
    const reach = page.after === null || last === undefined ? Number.POSITIVE_INFINITY : this.#placeOf(this.#id(last));
    this.shown = this.shown.map((row, place) => {
      const item = fresh.get(row.id);
      if (item !== undefined) return item === row.item && !row.hasLeft ? row : { id: row.id, item, hasLeft: false };
      return place < reach && !row.hasLeft ? { ...row, hasLeft: true } : row;
    });
    this.newCount = page.items.filter((item) => !ids.has(this.#id(item))).length;
    this.#waiting = this.newCount > 0 ? page : null;
    this.searchedBackTo = page.searched_back_to ?? this.searchedBackTo;
  }

  /** Show what waits, and take away what has left. */
  showNew(): void {
    if (this.#waiting !== null) this.replace(this.#waiting);
    else this.shown = this.shown.filter((row) => !row.hasLeft);
  }

  /** Add the next page at the end. */
  append(page: Page<T>): void {
    const ids = new Set(this.shown.map((row) => row.id));
    const more = page.items.filter((item) => !ids.has(this.#id(item)));
    this.shown = [...this.shown, ...more.map((item) => ({ id: this.#id(item), item, hasLeft: false }))];
    this.after = page.after;
    this.searchedBackTo = page.searched_back_to ?? null;
  }

  #settle(page: Page<T>): void {
    this.after = page.after;
    this.searchedBackTo = page.searched_back_to ?? null;
    this.newCount = 0;
    this.#waiting = null;
  }

  #placeOf(id: string): number {
    const place = this.shown.findIndex((row) => row.id === id);
    return place < 0 ? -1 : place;
  }
}
