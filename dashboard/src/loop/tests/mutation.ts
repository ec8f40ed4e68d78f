/**
 * Runs the vectors against changed sources, all in one process.
 *
 * A changed module is imported as a data: address. Its relative imports are replaced by the data: addresses of the
 * modules that they name, so that one mutant is one whole implementation of its own.
 */

import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";

import type { Case, Implementation } from "./vectors.ts";
import { differenceOf } from "./vectors.ts";

/** In the order in which they import each other. */
const MODULES = ["errors", "duration", "breaker", "policy", "state", "schedule", "reducer"] as const;
export type ModuleName = (typeof MODULES)[number];

export interface Mutant {
  /** The rule's name in the vectors. */
  readonly rule: string;
  /** What the mutant does wrong. */
  readonly does: string;
  readonly module: ModuleName;
  readonly from: string;
  readonly to: string;
}

export function mutant(rule: string, does: string, module: ModuleName, from: string, to: string): Mutant {
  return { rule, does, module, from, to };
}

const SOURCES = new Map<string, string>(
  MODULES.map((name) => [name, readFileSync(new URL(`../${name}.ts`, import.meta.url), "utf-8")]),
);

/** Return a module's source in which one text is replaced by another. The text must stand there exactly once. */
export function mutated(name: ModuleName, from: string, to: string): string {
  const source = SOURCES.get(name) ?? "";
  const found = source.split(from).length - 1;
  if (found !== 1) throw new Error(`${name}.ts has ${found} times: ${from}`);
  return source.replace(from, () => to);
}

/** Import the implementation in which one module has this source. */
export async function implementationWith(changed: ModuleName, source: string): Promise<Implementation> {
  const addresses = new Map<string, string>();
  for (const name of MODULES) {
    const text = name === changed ? source : (SOURCES.get(name) ?? "");
    const linked = stripTypeScriptTypes(text).replace(
      /from "\.\/(\w+)\.ts"/g,
      (_, other: string) => `from "${addresses.get(other)}"`,
    );
    addresses.set(name, `data:text/javascript;base64,${Buffer.from(linked).toString("base64")}`);
  }
  const parts = await Promise.all(["policy", "state", "reducer"].map((name) => import(String(addresses.get(name)))));
  return Object.assign({}, ...parts.map((part: object) => ({ ...part }))) as Implementation;
}

/** Return the first vector that the implementation fails, or null: then the mutant has survived. */
export function firstDifference(implementation: Implementation, cases: readonly Case[]): string | null {
  for (const vector of cases) {
    try {
      const difference = differenceOf(implementation, vector);
      if (difference !== null) return difference;
    } catch (error) {
      return `${vector.file}, "${vector.name}": ${String(error)}`;
    }
  }
  return null;
}
