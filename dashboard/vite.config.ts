import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

/** A running `everpoll serve`, which the development server asks for data. */
const SERVER = process.env["EVERPOLL_SERVER"] ?? "http://127.0.0.1:8787";

/**
 * Leave out Svelte's half for pages that a server has rendered: ours are drawn in the browser only.
 *
 * The minifier drops that half where `hydrating` is a constant, which saves 2.5 kB compressed.
 */
function neverHydrates(): Plugin {
  const changes = [
    ["export let hydrating = false;", "export const hydrating = false;"],
    ["hydrating = value;", "void value;"],
  ] as const;
  return {
    name: "never-hydrates",
    apply: "build",
    transform(code, id) {
      if (!id.endsWith("svelte/src/internal/client/dom/hydration.js")) return null;
      for (const [from, to] of changes) {
        if (!code.includes(from)) this.error(`svelte has no "${from}" any more: mend neverHydrates in vite.config.ts`);
        code = code.replace(from, to);
      }
      return { code, map: null };
    },
  };
}

export default defineConfig({
  plugins: [svelte(), neverHydrates()],
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
