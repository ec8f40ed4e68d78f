/** Values as text. */

import { exactText } from "./exact.ts";

const WIDEST = 200;
/** Counts of the API that are not exact above. */
export const CAP = 10_000;

/** Return a count with separators, "10,000+" where it is capped. */
export function count(value: number, cap = Number.POSITIVE_INFINITY): string {
  return value >= cap ? `${cap.toLocaleString("en-US")}+` : value.toLocaleString("en-US");
}

/** Return a count to one decimal, for the axis of a chart. */
export function roundCount(value: number): string {
  return count(Math.round(value * 10) / 10);
}

/** Return "1 job" or "3 jobs". */
export function counted(value: number, one: string, several = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : several}`;
}

/** Return a call as one line: `"a", depth: 2`. */
export function callText(args: unknown[], kwargs: Record<string, unknown>): string {
  const parts = args.map(short);
  for (const [name, value] of Object.entries(kwargs)) parts.push(`${name}: ${short(value)}`);
  const text = parts.join(", ");
  return text.length > WIDEST ? `${text.slice(0, WIDEST)}…` : text;
}

function short(value: unknown): string {
  const text = exactText(value);
  return text.length > WIDEST ? `${text.slice(0, WIDEST)}…` : text;
}

/** Return a value as Python writes it. */
export function pythonText(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(pythonText).join(", ")}]`;
  if (typeof value === "object") {
    const members = Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonText(one)}`);
    return `{${members.join(", ")}}`;
  }
  return exactText(value);
}

/** Return a text as one word of a POSIX shell. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Return a percentage that never rounds up to 100. */
export function percentText(percent: number | null): string {
  if (percent === null) return "–";
  if (percent >= 100) return "100%";
  return `${(Math.floor(percent * 100) / 100).toFixed(2)}%`;
}
