/**
 * Where everpoll is mounted, as this browser sees it.
 *
 * The server writes the way up from the requested address into a meta tag, so the app needs no configuration below a
 * prefix. The address is read once: after the first pushState the same way up would lead elsewhere.
 */

// The development server serves every view from the root, with index.html as it stands.
const written = import.meta.env.DEV
  ? "/"
  : (document.querySelector<HTMLMetaElement>('meta[name="everpoll-base"]')?.content ?? "./");

/** The path of the mount, with a slash at both ends: "/" or "/ops/everpoll/". */
export const BASE: string = new URL(written, document.baseURI).pathname;

/** Return the address below the mount of a path such as "/jobs?state=failed" or "/api/jobs". */
export function href(path: string): string {
  return BASE + path.replace(/^\/+/, "");
}

/** Return the path below the mount, with a leading slash, of a pathname such as "/ops/everpoll/jobs". */
export function pathBelow(pathname: string): string {
  return pathname.startsWith(BASE) ? `/${pathname.slice(BASE.length)}` : "/";
}
