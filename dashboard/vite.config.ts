import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

/** A running `everpoll serve`, which the development server asks for data. */
const SERVER = process.env["EVERPOLL_SERVER"] ?? "http://127.0.0.1:8787";

/**
 * What the minifier may take for granted in Svelte, by file: together it saves 4 kB of the compressed files.
 *
 * - Ours are no pages that a server has rendered.
 * - No component has an `await`, a fork or a `<svelte:boundary>`: nothing waits for one.
 * - State is never deep: an object in it is replaced, not changed. `transform` below checks that.
 */
const GRANTED: Record<string, [from: string, to: string][]> = {
  "dom/hydration.js": [
    ["export let hydrating = false;", "export const hydrating = false;"],
    ["hydrating = value;", "void value;"],
  ],
  "dom/blocks/boundary.js": [
    ["current_batch?.is_fork", "false"],
    ["!this.#props.onerror && !this.#props.failed", "true"],
    ["this.#pending_count > 0", "false"],
  ],
  "proxy.js": [["export function proxy(value) {", "export function proxy(value) {\n\treturn value;"]],
  "reactivity/async.js": [["if (async.length === 0 && pending.length === 0) {", "if (true) {"]],
  "reactivity/batch.js": [["this.is_fork", "false"]],
  "reactivity/deriveds.js": [["current_batch?.is_fork", "false"]],
};
const DEEP_STATE = /\$state(<[^(]*>)?\(\s*[[{]/;

/** What components are compiled to, and only legacy components and pages of a server need. */
const NEEDLESS: [from: RegExp, to: string][] = [
  [/,\s*\$\$slots: \{[^{}]*\}/g, ""],
  [/(\$\.child\(\w+), true\)/g, "$1)"],
];

function leanerSvelte(): Plugin {
  return {
    name: "leaner-svelte",
    apply: "build",
    enforce: "pre",
    transform(code, id) {
      if (!id.includes("node_modules") && DEEP_STATE.test(code)) this.error("state is not deep here: write $state.raw, and replace the object");
      const [, file = ""] = id.split("svelte/src/internal/client/");
      const changes = GRANTED[file];
      if (changes === undefined) return null;
      for (const [from, to] of changes) {
        if (!code.includes(from)) this.error(`svelte has no "${from}" any more: mend GRANTED in vite.config.ts`);
        code = code.replaceAll(from, to);
      }
      return { code, map: null };
    },
  };
}

function leanerComponents(): Plugin {
  return {
    name: "leaner-components",
    apply: "build",
    transform(code, id) {
      if (!id.endsWith(".svelte")) return null;
      for (const [from, to] of NEEDLESS) code = code.replace(from, to);
      return { code, map: null };
    },
  };
}

export default defineConfig({
  plugins: [leanerSvelte(), svelte(), leanerComponents()],
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
