/**
 * JSON whose integers stay exact: those that a number cannot hold are of type `bigint`. Pure.
 *
 * `JSON.parse` rounds them, and the browsers that tell the source text of a number are too new to rely on.
 */

const MARK = "\u0000integer ";
/** A string of JSON, or an integer of 16 digits or more that stands outside of one. */
const TOKENS = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;

/** Return the value of a JSON text. */
export function parseExact(text: string): unknown {
  const marked = text.replace(TOKENS, (token) => (token.startsWith('"') ? token : JSON.stringify(MARK + token)));
  return JSON.parse(marked, (_, value: unknown) => (typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value));
}

/** Return a value as JSON text. */
export function exactText(value: unknown, indent = 0): string {
  const text = JSON.stringify(value, (_, one: unknown) => (typeof one === "bigint" ? `${MARK}${one}` : one), indent) ?? "null";
  return text.replaceAll(/"\\u0000integer (-?\d+)"/g, "$1");
}
