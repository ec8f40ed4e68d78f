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

  /** Take a newer answer, which begins at the top of the list and may reach further down than what is shown. */
  update(page: Page<T>): void {
    if (this.shown.length === 0) {
      this.replace(page);
      return;
    }
    const fresh = new Map(page.items.map((item) => [this.#id(item), item]));
    const ids = new Set(this.shown.map((row) => row.id));
    const lastKnown = page.items.findLastIndex((item) => ids.has(this.#id(item)));
    const lastPlace = this.shown.findLastIndex((row) => fresh.has(row.id));
    const isAtEnd = page.after === null;
    const rows = this.shown.map((row, place) => {
      const item = fresh.get(row.id);
      if (item !== undefined) return { id: row.id, item, hasLeft: false };
      // Rows behind the end of the answer are not part of it, so it does not say that they have left.
      return (isAtEnd || place < lastPlace) && !row.hasLeft ? { ...row, hasLeft: true } : row;
    });
    const unknown = page.items.filter((item) => !ids.has(this.#id(item)));
    // What comes behind the last row is the next page; what comes before it is new.
    const reachesBeyond = lastKnown >= 0 && lastPlace === this.#lastPresent();
    const more = reachesBeyond ? page.items.slice(lastKnown + 1) : [];
    this.shown = [...rows, ...more.map((item) => ({ id: this.#id(item), item, hasLeft: false }))];
    if (reachesBeyond || isAtEnd) {
      this.after = page.after;
      this.searchedBackTo = page.searched_back_to ?? null;
    }
    this.newCount = unknown.length - more.length;
    this.#waiting = this.newCount > 0 ? page : null;
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

  #lastPresent(): number {
    return this.shown.findLastIndex((row) => !row.hasLeft);
  }
}
