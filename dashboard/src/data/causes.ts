/** Causes of failures, grouped by job and class of error: the finest selection that the filter of jobs can name. */

import type { Cause, Id } from "./shapes.ts";
import { ms } from "./times.ts";

export interface CauseGroup {
  name: string;
  /** Empty: the jobs failed without an error, as where their workers died. */
  type: string;
  count: number;
  firstAt: number;
  lastAt: number;
  /** The different texts of the error, the most frequent first. */
  texts: { error: string; count: number; examples: Id[] }[];
}

/** Return the groups, the largest first. */
export function groupsOf(causes: readonly Cause[]): CauseGroup[] {
  const groups = new Map<string, CauseGroup>();
  for (const one of causes) {
    const key = `${one.name}\n${one.type}`;
    const group = groups.get(key) ?? { name: one.name, type: one.type, count: 0, firstAt: Infinity, lastAt: -Infinity, texts: [] };
    group.count += one.count;
    group.firstAt = Math.min(group.firstAt, ms(one.first_at));
    group.lastAt = Math.max(group.lastAt, ms(one.last_at));
    group.texts.push({ error: one.error, count: one.count, examples: one.examples });
    groups.set(key, group);
  }
  return [...groups.values()].sort((one, other) => other.count - one.count || other.lastAt - one.lastAt);
}
