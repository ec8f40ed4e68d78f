/** The class that scopes the styles of a component. Svelte's own are three times as long, and stand 700 times in the files. */
const LETTERS = 3;

const styles = new Map();

function scope({ hash, css }) {
  const name = `_${hash(css).slice(0, LETTERS)}`;
  if ((styles.get(name) ?? css) !== css) throw new Error(`two components have the scope ${name}: raise LETTERS in svelte.config.js`);
  styles.set(name, css);
  return name;
}

/** @type {import("@sveltejs/vite-plugin-svelte").SvelteConfig} */
export default {
  compilerOptions: { runes: true, cssHash: scope },
};
