/** What a person chose for this browser: theme, density, time zone. Everything else is in the URL. */

export type Theme = "auto" | "light" | "dark";
export type Density = "comfortable" | "compact";
export type Zone = "local" | "utc";

const PLACE = "everpoll.preferences";

interface Stored {
  theme?: Theme;
  density?: Density;
  zone?: Zone;
}

function stored(): Stored {
  try {
    return JSON.parse(localStorage.getItem(PLACE) ?? "{}") as Stored;
  } catch {
    return {};
  }
}

class Preferences {
  theme = $state<Theme>("auto");
  density = $state<Density>("comfortable");
  zone = $state<Zone>("local");
  #systemDark = globalThis.matchMedia("(prefers-color-scheme: dark)");
  #isSystemDark = $state(false);

  constructor() {
    const before = stored();
    this.theme = before.theme ?? "auto";
    this.density = before.density ?? "comfortable";
    this.zone = before.zone ?? "local";
    this.#isSystemDark = this.#systemDark.matches;
    this.#systemDark.addEventListener("change", (event) => {
      this.#isSystemDark = event.matches;
      this.#show();
    });
    this.#show();
  }

  get shownTheme(): "light" | "dark" {
    if (this.theme !== "auto") return this.theme;
    return this.#isSystemDark ? "dark" : "light";
  }

  set(change: Stored): void {
    Object.assign(this, change);
    this.#show();
    const { theme, density, zone } = this;
    try {
      localStorage.setItem(PLACE, JSON.stringify({ theme, density, zone }));
    } catch {
      // A browser that stores nothing keeps the choice until the page is closed.
    }
  }

  #show(): void {
    document.documentElement.dataset["theme"] = this.shownTheme;
    document.documentElement.dataset["density"] = this.density;
  }
}

export const preferences = new Preferences();
