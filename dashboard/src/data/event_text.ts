/** Events of the durable log as sentences. Pure. */

import type { EventItem } from "./shapes.ts";
import type { Tone } from "./status.ts";

export interface EventText {
  tone: Tone;
  subject: string;
  /** Where the subject is shown; null: nowhere. */
  path: string | null;
  says: string;
  actor: string;
}

const FAILED = new Set(["failed", "down", "open", "opened", "lost"]);
const WARNED = new Set(["retry", "cancel", "canceled", "degraded", "pause", "paused", "mute", "rescue", "hand-back", "timed_out"]);
const WELL = new Set(["done", "up", "ready", "resume", "closed", "finished", "resolved", "recovered"]);
const ACTS: Record<string, string> = {
  retry: "retried",
  cancel: "cancel asked for",
  "run-now": "made due now",
  "look-now": "look asked for",
  extend: "budget extended",
  delete: "deleted",
  pause: "paused",
  resume: "resumed",
  trigger: "triggered",
  reset: "reset",
  check: "check asked for",
  mute: "muted",
  unmute: "unmuted",
  add: "added",
  change: "changed",
  remove: "removed",
  acknowledge: "acknowledged",
  intent: "is being started",
  looking: "is looked at",
  verifying: "is being verified",
  canceling: "is being canceled",
  cleaning: "is being cleaned up",
  needs_code: "waits for code",
};

/** Return one event as its row says it. */
export function eventText(event: EventItem): EventText {
  const body = event.body ?? {};
  const text = (name: string): string => (body[name] === undefined || body[name] === null ? "" : String(body[name]));
  const what = text("what") || text("phase") || text("currentStatus") || text("current_status") || text("status");
  const actor = text("by");
  return { tone: toneOf(event, what), ...subject(event), says: sentence(event, what, text), actor };
}

/** Of events of services without a word for their state. */
const TONES: Record<string, Tone> = {
  "incident:open": "fail",
  "incident:close": "ok",
  "circuit:open": "warn",
  "circuit:close": "ok",
  "service:paused": "warn",
  "service:resumed": "ok",
};

function toneOf(event: EventItem, what: string): Tone {
  const known = TONES[String(event.body?.["kind"] ?? "")];
  if (known !== undefined) return known;
  const outcome = String(event.body?.["outcome"] ?? "");
  for (const word of [outcome, what]) {
    if (FAILED.has(word)) return "fail";
    if (WELL.has(word)) return "ok";
    // A retry that an operator asked for is not a warning.
    if (WARNED.has(word) && !(word === "retry" && event.body?.["by"] !== undefined && event.body["attempt"] === undefined)) return "warn";
  }
  return "idle";
}

function subject(event: EventItem): { subject: string; path: string | null } {
  const name = encodeURIComponent(event.name);
  const task = String(event.task_id);
  switch (event.kind) {
    case "job":
      return { subject: `${event.name} ${task}`, path: `/jobs/${task}` };
    case "watch":
      return { subject: event.key ?? `${event.name} ${task}`, path: `/runs/${task}` };
    case "check": {
      const service = event.key ?? event.name;
      return { subject: service, path: `/services/${encodeURIComponent(service)}` };
    }
    case "service":
      return { subject: event.name, path: `/services/${name}` };
    case "incident":
      return { subject: `incident ${event.key ?? event.name}`, path: null };
    case "queue":
      return { subject: `queue ${event.name}`, path: `/queues/${name}` };
    case "loop":
      return { subject: `loop ${event.name}`, path: `/loops?q=${name}` };
    case "bulk":
      return { subject: `bulk ${event.name}`, path: null };
    default:
      return { subject: `${event.kind} ${event.name}`, path: null };
  }
}

function sentence(event: EventItem, what: string, text: (name: string) => string): string {
  if (event.kind === "bulk") {
    const word = what === "finished" ? "finished" : "continues";
    return `${word}: ${text("moved")} of ${text("matched")} changed, ${text("skipped")} skipped`;
  }
  if (event.kind === "check" && text("what") === "") return checkSentence(text);
  const attempt = text("attempt") === "" ? "" : `attempt ${text("attempt")}`;
  const isOwn = what === "retry" && attempt !== "";
  const verb = isOwn ? "failed, waits for its next attempt" : (ACTS[what] ?? what.replaceAll("_", " "));
  const state = text("outcome") !== "" && text("outcome") !== what ? text("outcome").replaceAll("_", " ") : "";
  const error = text("error") === "" ? "" : `${text("type") || "error"}: ${text("error")}`;
  const why = text("why") || text("reason");
  const progress = event.kind === "watch" && text("outcome") === "" ? [text("status"), text("progress")] : [];
  const parts = [[attempt, verb].filter(Boolean).join(" "), state, ...progress, error === "" ? why : error];
  return parts.filter((part) => part !== "").join(" · ");
}

/** What a look at a service has found. */
function checkSentence(text: (name: string) => string): string {
  const dependency = text("dependencyName");
  const error = text("error") || text("errorMessage");
  const status = text("currentStatus") || text("status");
  const known: Record<string, string> = {
    "service:started": "is monitored from now on",
    "service:stopped": "is not monitored any more",
    "service:paused": ["is paused", text("reason")].filter(Boolean).join(": "),
    "service:resumed": "is looked at again",
    "dependency:vanished": `reports no ${dependency} any more`,
    "dependency:returned": `reports ${dependency} again`,
    "incident:open": dependency === "" ? "incident opened" : `incident about ${dependency} opened`,
    "incident:close": dependency === "" ? "incident closed" : `incident about ${dependency} closed`,
    "incident:acknowledge": dependency === "" ? "incident acknowledged" : `incident about ${dependency} acknowledged`,
    "circuit:open": "its breaker is open",
    "circuit:close": "its breaker is closed",
    "dependency:new": `reports a dependency: ${dependency} ${status}`.trim(),
    "status:change": [dependency, text("previousStatus"), text("previousStatus") === "" ? "is" : "→", status].filter(Boolean).join(" "),
  };
  const says = known[text("kind")] ?? [text("kind").replaceAll(":", " "), dependency, status].filter(Boolean).join(" ");
  return [says, error].filter((part) => part !== "").join(" · ");
}
