/**
 * Where the things of a graph of services stand: what depends on others is left of it. Pure.
 *
 * Places depend on names and edges alone, so a change of status moves nothing. An edge that closes a circle is drawn,
 * and ignored for the places.
 */

import type { GraphAnswer, GraphEdge, GraphNode } from "./shapes.ts";

export const NODE = { width: 200, height: 48, gapX: 72, gapY: 16 };
const SWEEPS = 4;
const LONERS_PER_LINE = 4;

export interface PlacedNode {
  node: GraphNode;
  x: number;
  y: number;
}

export interface PlacedEdge {
  id: string;
  path: string;
  /** The status of what is depended on. */
  status: string;
}

export interface Layout {
  nodes: PlacedNode[];
  edges: PlacedEdge[];
  width: number;
  height: number;
}

/** Return the things that each thing depends on, by name, and those that depend on it. */
export function neighbours(graph: GraphAnswer): { below: Map<string, string[]>; above: Map<string, string[]> } {
  const below = new Map(graph.nodes.map((node) => [node.name, [] as string[]]));
  const above = new Map(graph.nodes.map((node) => [node.name, [] as string[]]));
  for (const { source, target } of graph.edges) {
    if (source === target) continue;
    below.get(source)?.push(target);
    above.get(target)?.push(source);
  }
  return { below, above };
}

export function layout(graph: GraphAnswer): Layout {
  const { below, above } = neighbours(graph);
  const isLoner = (name: string): boolean => below.get(name)?.length === 0 && above.get(name)?.length === 0;
  const joined = graph.nodes.map((node) => node.name).filter((name) => !isLoner(name));
  const loners = graph.nodes.map((node) => node.name).filter(isLoner);
  const layers = ordered(layered(joined, below, above), below, above);
  const tallest = Math.max(0, ...layers.map((layer) => layer.length));
  const places = new Map<string, { x: number; y: number }>();
  const lineY = (line: number): number => line * (NODE.height + NODE.gapY);
  for (const [column, layer] of layers.entries()) {
    const top = (tallest - layer.length) / 2;
    for (const [line, name] of layer.entries()) places.set(name, { x: column * (NODE.width + NODE.gapX), y: lineY(top + line) });
  }
  const perLine = Math.max(LONERS_PER_LINE, layers.length);
  for (const [place, name] of loners.entries()) {
    const line = tallest + Math.floor(place / perLine) + (tallest > 0 ? 0.5 : 0);
    places.set(name, { x: (place % perLine) * (NODE.width + NODE.gapX), y: lineY(line) });
  }
  const nodes = graph.nodes.map((node) => ({ node, ...(places.get(node.name) ?? { x: 0, y: 0 }) }));
  return {
    nodes,
    edges: drawn(graph, places),
    width: Math.max(0, ...nodes.map((one) => one.x)) + NODE.width,
    height: Math.max(0, ...nodes.map((one) => one.y)) + NODE.height,
  };
}

/** Return names by layer: each stands one layer behind the last thing that depends on it. */
function layered(names: string[], below: Map<string, string[]>, above: Map<string, string[]>): string[][] {
  const forward = withoutCircles(names, below, above);
  const waitsFor = new Map(names.map((name) => [name, 0]));
  for (const targets of forward.values()) for (const name of targets) waitsFor.set(name, (waitsFor.get(name) ?? 0) + 1);
  const layerOf = new Map(names.map((name) => [name, 0]));
  const ready = names.filter((name) => waitsFor.get(name) === 0);
  for (let name = ready.shift(); name !== undefined; name = ready.shift()) {
    for (const target of forward.get(name) ?? []) {
      layerOf.set(target, Math.max(layerOf.get(target) ?? 0, (layerOf.get(name) ?? 0) + 1));
      const left = (waitsFor.get(target) ?? 1) - 1;
      waitsFor.set(target, left);
      if (left === 0) ready.push(target);
    }
  }
  const layers: string[][] = [];
  for (const name of names) (layers[layerOf.get(name) ?? 0] ??= []).push(name);
  return layers;
}

/** Return the edges of a walk from the left that never leads back to where it came from. */
function withoutCircles(names: string[], below: Map<string, string[]>, above: Map<string, string[]>): Map<string, string[]> {
  const forward = new Map(names.map((name) => [name, [] as string[]]));
  const seen = new Map<string, "open" | "left">();
  const walk = (from: string): void => {
    const trail = [{ name: from, next: 0 }];
    seen.set(from, "open");
    for (let last = trail.at(-1); last !== undefined; last = trail.at(-1)) {
      const target = below.get(last.name)?.[last.next];
      last.next += 1;
      if (target === undefined) {
        seen.set(last.name, "left");
        trail.pop();
      } else if (seen.get(target) !== "open") {
        forward.get(last.name)?.push(target);
        if (!seen.has(target)) {
          seen.set(target, "open");
          trail.push({ name: target, next: 0 });
        }
      }
    }
  };
  const starts = [...names.filter((name) => above.get(name)?.length === 0), ...names];
  for (const name of starts) if (!seen.has(name)) walk(name);
  return forward;
}

/** Order each layer so that few edges cross: each thing near the middle of its neighbours. */
function ordered(layers: string[][], below: Map<string, string[]>, above: Map<string, string[]>): string[][] {
  const place = new Map<string, number>();
  const note = (layer: string[]): void => {
    for (const [line, name] of layer.entries()) place.set(name, line - layer.length / 2);
  };
  layers.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isToTheRight = sweep % 2 === 0;
    const near = isToTheRight ? above : below;
    for (const layer of isToTheRight ? layers : [...layers].reverse()) {
      const middle = new Map(layer.map((name) => [name, mean((near.get(name) ?? []).map((one) => place.get(one) ?? 0)) ?? place.get(name) ?? 0]));
      layer.sort((one, other) => (middle.get(one) ?? 0) - (middle.get(other) ?? 0) || (one < other ? -1 : 1));
      note(layer);
    }
  }
  return layers;
}

function mean(values: number[]): number | null {
  return values.length === 0 ? null : values.reduce((sum, one) => sum + one, 0) / values.length;
}

function drawn(graph: GraphAnswer, places: Map<string, { x: number; y: number }>): PlacedEdge[] {
  const statuses = new Map(graph.nodes.map((node) => [node.name, node.status]));
  return graph.edges.flatMap((edge) => {
    const path = curve(edge, places);
    return path === null ? [] : [{ id: JSON.stringify([edge.source, edge.target]), path, status: statuses.get(edge.target) ?? "unknown" }];
  });
}

function curve({ source, target }: GraphEdge, places: Map<string, { x: number; y: number }>): string | null {
  const [from, to] = [places.get(source), places.get(target)];
  if (from === undefined || to === undefined || source === target) return null;
  const [x1, y1] = [from.x + NODE.width, from.y + NODE.height / 2];
  const [x2, y2] = [to.x, to.y + NODE.height / 2];
  const bend = Math.max(NODE.gapX / 2, Math.abs(x2 - x1) / 3);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

export interface TreeRow {
  id: string;
  node: GraphNode;
  level: number;
  /** What is below it stands elsewhere in the tree. */
  isAgain: boolean;
}

/** Return the graph as a tree: what nothing depends on first, and below each thing what it depends on. */
export function tree(graph: GraphAnswer, limit: number): TreeRow[] {
  const { below, above } = neighbours(graph);
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const rows: TreeRow[] = [];
  const expanded = new Set<string>();
  const add = (start: string): void => {
    const waiting = [{ name: start, level: 0, id: JSON.stringify(start) }];
    for (let one = waiting.pop(); one !== undefined && rows.length < limit; one = waiting.pop()) {
      const node = nodes.get(one.name);
      if (node === undefined) continue;
      const children = below.get(one.name) ?? [];
      rows.push({ id: one.id, node, level: one.level, isAgain: expanded.has(one.name) && children.length > 0 });
      if (expanded.has(one.name)) continue;
      expanded.add(one.name);
      const { level, id } = one;
      waiting.push(...children.map((name) => ({ name, level: level + 1, id: `${id}/${JSON.stringify(name)}` })).reverse());
    }
  };
  for (const node of graph.nodes) if (above.get(node.name)?.length === 0) add(node.name);
  for (const node of graph.nodes) if (!expanded.has(node.name)) add(node.name);
  return rows;
}
