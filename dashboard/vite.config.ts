import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

/** A running `everpoll serve`, which the development server asks for data. */
const SERVER = process.env["EVERPOLL_SERVER"] ?? "http://127.0.0.1:8787";

/**
 * What the minifier may take for granted in Svelte, by file.
 *
 * Ours are no pages that a server has rendered: without that half, 2.5 kB less compressed. No component has an `await`,
 * which the compiler would refuse without `experimental.async`: without waiting for one, 1 kB less.
 */
const GRANTED: Record<string, [from: string, to: string][]> = {
  "dom/hydration.js": [
    ["export let hydrating = false;", "export const hydrating = false;"],
    ["hydrating = value;", "void value;"],
  ],
  "reactivity/async.js": [["if (async.length === 0 && pending.length === 0) {", "if (true) {"]],
};

function leaner(): Plugin {
  return {
    name: "leaner-svelte",
    apply: "build",
    transform(code, id) {
      const [, file = ""] = id.split("svelte/src/internal/client/");
      const changes = GRANTED[file];
      if (changes === undefined) return null;
      for (const [from, to] of changes) {
        if (!code.includes(from)) this.error(`svelte has no "${from}" any more: mend GRANTED in vite.config.ts`);
        code = code.replace(from, to);
      }
      return { code, map: null };
    },
  };
}

export default defineConfig({
  plugins: [svelte(), leaner()],
  // Relative addresses only: the app works below any prefix. The server writes the way up into index.html.
  base: "./",
  build: {
    outDir: "../src/everpoll/server/dashboard",
    emptyOutDir: true,
    assetsDir: "assets",
    // The Content-Security-Policy forbids data: addresses and inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: ["chrome111", "firefox114", "safari16.4"],
    reportCompressedSize: false,
  },
  server: {
    host: "127.0.0.1",
    proxy: {
      // The server refuses a Host that it does not know, and changes that come from another Origin.
      "^/(api/|openapi\\.json|health$|login|logout)": {
        target: SERVER,
        changeOrigin: true,
        headers: { Origin: SERVER },
      },
    },
  },
});
