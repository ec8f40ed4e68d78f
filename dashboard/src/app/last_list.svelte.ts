/** The list that a person came from: "[" and "]" go to the previous and the next of its rows. */
class LastList {
  #paths: string[] = [];

  keep(paths: string[]): void {
    this.#paths = paths;
  }

  /** Return the path beside this one; null at either end, and without a list. */
  beside(path: string, by: 1 | -1): string | null {
    const at = this.#paths.indexOf(path);
    return at < 0 ? null : (this.#paths[at + by] ?? null);
  }
}

export const lastList = new LastList();
