import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** A running `everpoll serve`, which the development server asks for data. */
const SERVER = process.env["EVERPOLL_SERVER"] ?? "http://127.0.0.1:8787";

export default defineConfig({
  plugins: [svelte()],
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
