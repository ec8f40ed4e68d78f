/** Keys: what each does on the page that is shown. Off inside fields and dialogs. */

export interface Key {
  /** As `KeyboardEvent.key`: "j", "?", "Enter". */
  key: string;
  /** For the list of keys. */
  does: string;
  run: () => void;
}

const GO_MS = 1500;

class Keys {
  #layers: Key[][] = [];
  #goUntil = 0;
  /** Where "g" and a letter lead. */
  places: { letter: string; path: string; name: string }[] = [];
  go: (path: string) => void = () => undefined;

  start(): () => void {
    const onKey = (event: KeyboardEvent): void => this.#press(event);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }

  /** Keys of a component, until it ends; later ones win. */
  use(layer: Key[]): () => void {
    this.#layers.push(layer);
    return () => {
      this.#layers = this.#layers.filter((one) => one !== layer);
    };
  }

  /** All keys of this moment, each once. */
  list(): Key[] {
    const seen = new Map<string, Key>();
    for (const layer of this.#layers) for (const key of layer) seen.set(key.key, key);
    return [...seen.values()];
  }

  #press(event: KeyboardEvent): void {
    if ((event.metaKey || event.ctrlKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.#find("palette")?.run();
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented || isTyping(event)) return;
    if (performance.now() < this.#goUntil) {
      this.#goUntil = 0;
      const place = this.places.find((one) => one.letter === event.key);
      if (place !== undefined) {
        event.preventDefault();
        this.go(place.path);
        return;
      }
    }
    if (event.key === "g") {
      this.#goUntil = performance.now() + GO_MS;
      return;
    }
    const found = this.#find(event.key);
    if (found === undefined || (event.key === "Enter" && isControl(event.target))) return;
    event.preventDefault();
    found.run();
  }

  #find(name: string): Key | undefined {
    for (const layer of this.#layers.toReversed()) {
      const found = layer.find((one) => one.key === name);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

function isTyping(event: KeyboardEvent): boolean {
  const target = event.target;
  if (document.querySelector("dialog[open]") !== null) return true;
  if (!(target instanceof HTMLElement)) return false;
  const isTextless = target instanceof HTMLInputElement && ["checkbox", "radio", "button"].includes(target.type);
  return !isTextless && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

function isControl(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("a, button, summary") !== null;
}

export const keys = new Keys();
