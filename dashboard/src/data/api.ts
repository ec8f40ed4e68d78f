/**
 * Calls of the HTTP API. Every answer also tells the server's clock and what this browser may do.
 *
 * Ids may be longer than a JavaScript number can hold: the server sends those as text, and `idText` makes text of all.
 */

import { href } from "../base.ts";
import { clock } from "./clock.svelte.ts";
import { session } from "./session.svelte.ts";

/** What the server says went wrong, as a problem document. */
export class ApiError extends Error {
  readonly status: number;
  /** The argument that cannot be used. */
  readonly argument: string | null;
  /** The id of the job that holds the key of another one. */
  readonly holder: string | null;

  constructor(status: number, detail: string, argument: string | null = null, holder: string | null = null) {
    super(detail);
    this.status = status;
    this.argument = argument;
    this.holder = holder;
  }

  /** No answer came: the server is away, or the network is. */
  get isUnreachable(): boolean {
    return this.status === 0;
  }
}

export interface Fresh<T> {
  kind: "fresh";
  value: T;
  tag: string | null;
}
/** The answer is what the caller has already (304). */
export interface Same {
  kind: "same";
}

const HEADERS = { Accept: "application/json", "Everpoll-Request": "dashboard" };

/** Read a path such as "/api/jobs?state=failed"; `tag` is the ETag of what the caller has. */
export async function read<T>(path: string, tag: string | null, signal: AbortSignal): Promise<Fresh<T> | Same> {
  const headers: Record<string, string> = { ...HEADERS };
  if (tag !== null) headers["If-None-Match"] = tag;
  const answer = await ask(path, { headers, signal, cache: "no-store" });
  if (answer.status === 304) return { kind: "same" };
  return { kind: "fresh", value: (await answer.json()) as T, tag: answer.headers.get("ETag") };
}

/** Read a path once. */
export async function readOnce<T>(path: string, signal: AbortSignal = new AbortController().signal): Promise<T> {
  const answer = await read<T>(path, null, signal);
  if (answer.kind === "same") throw new ApiError(304, "The server sent no content.");
  return answer.value;
}

/** Change something. `body` is JSON text or a value; text lets a caller write ids that no number can hold. */
export async function send<T>(method: "POST" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method, headers: { ...HEADERS }, cache: "no-store" };
  if (body !== undefined) {
    init.headers = { ...HEADERS, "Content-Type": "application/json" };
    init.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  const answer = await ask(path, init);
  return (answer.status === 204 ? null : await answer.json()) as T;
}

/** Open a stream; the caller reads its body. */
export async function openStream(path: string, signal: AbortSignal, lastId?: string): Promise<Response> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (lastId !== undefined) headers["Last-Event-ID"] = lastId;
  return ask(path, { headers, signal, cache: "no-store" });
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  const began = performance.now();
  let answer: Response;
  try {
    answer = await fetch(href(path), { credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  clock.sync(answer.headers.get("Everpoll-Time"), performance.now() - began);
  session.heard(answer.headers);
  if (answer.ok || answer.status === 304) return answer;
  if (answer.status === 401) session.end();
  throw await problem(answer);
}

async function problem(answer: Response): Promise<ApiError> {
  let fields: Record<string, unknown> = {};
  try {
    fields = (await answer.json()) as Record<string, unknown>;
  } catch {
    // A proxy in between answers in its own words.
  }
  const detail = typeof fields["detail"] === "string" ? fields["detail"] : `The server answered ${answer.status}.`;
  const argument = typeof fields["argument"] === "string" ? fields["argument"] : null;
  const holder = fields["holder"] === undefined || fields["holder"] === null ? null : String(fields["holder"]);
  return new ApiError(answer.status, detail, argument, holder);
}

/** Return an id as text. */
export function idText(id: number | string): string {
  return String(id);
}

/** Return a path with its query; empty values are left out. */
export function withQuery(path: string, query: Record<string, string | number | boolean | null | undefined>): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) parts.set(name, String(value));
  }
  const text = parts.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** Return a name as one segment of a path. */
export function segment(name: string): string {
  return encodeURIComponent(name);
}
