/** The answers of the HTTP API that the views read. Ids are numbers, or text where a number cannot hold them. */

export type Id = number | string;
export type JobState = "queued" | "running" | "done" | "failed" | "canceled";

export interface Page<T> {
  items: T[];
  after: string | null;
  searched_back_to?: string | null;
}

export interface JobError {
  error: string;
  type?: string;
  attempt?: number;
  at?: number;
  by?: string;
  why?: string;
  traceback?: string;
}

export interface JobItem {
  id: Id;
  name: string;
  queue: string;
  key: string | null;
  state: JobState;
  priority: number;
  attempt: number;
  /** How many it has in all; null: the server does not know the job. */
  attempts: number | null;
  created_at: string;
  due_at: string;
  started_at: string | null;
  ended_at: string | null;
  worker: string | null;
  cancel_requested: boolean;
  args: unknown[];
  kwargs: Record<string, unknown>;
  progress: unknown;
  error: JobError | null;
  then_id: Id | null;
  blockers: number;
  /** What it shares with the other jobs of the key: how many run at a time, how many start in a while. */
  limit: { key: string; running?: number | null; starts?: number | null; per_s?: number | null } | null;
}

export interface TrailEntry {
  what?: string;
  at?: number;
  by?: string;
  why?: string;
  attempt?: number;
  type?: string;
  error?: string;
  [more: string]: unknown;
}

export interface JobAction {
  at: string;
  body: Record<string, unknown>;
}

export interface JobDetail extends JobItem {
  /** The JSON of those fields that have an integer which a number cannot hold. */
  exact: Partial<Record<"args" | "kwargs" | "result" | "progress", string>>;
  /** Of its arguments. */
  version: number;
  result: unknown;
  errors: JobError[];
  trail: TrailEntry[];
  actions: JobAction[];
  rescues: number;
  deadline_at: string | null;
  waits_for: { id: Id; name: string; state: JobState }[];
  /** The group that it waits for. Members that history has no more are in `total` only. */
  members: { total: number; ended: number; failed: number; canceled: number } | null;
}

export interface Why {
  verdict: string;
  evidence: string[];
  advice: string | null;
}

export interface Cause {
  name: string;
  type: string;
  error: string;
  count: number;
  first_at: string;
  last_at: string;
  examples: Id[];
}

export interface CauseList {
  items: Cause[];
  is_capped: boolean;
  searched: number;
}

export interface BulkAnswer {
  id: string;
  action: "redrive" | "cancel" | "delete";
  dry_run: boolean;
  as_of: string;
  matched: number;
  eligible: number;
  moved: number;
  skipped: number;
  reasons: Record<string, number>;
  is_capped: boolean;
  is_done: boolean;
}

export interface WorkerItem {
  incarnation: string;
  label: string;
  host: string;
  pid: number;
  queues: string[];
  slots: number;
  running: number;
  version: string;
  started_at: string;
  beat_at: string;
  is_alive: boolean;
  stopped_at: string | null;
  /** The adopted table of which it runs rows; null or absent: it runs tasks of its queues. */
  table?: string | null;
}

/** Why a queue, a service or a run is paused, by which operator and since when. */
export interface Pause {
  reason: string;
  by: string;
  at: string;
}

export interface QueueItem {
  name: string;
  ready: number;
  waiting: number;
  running: number;
  /** Due, but their limit does not let them start yet; not among the ready ones. */
  limited: number;
  /** Of chains and groups; they wait for other jobs to end. */
  blocked: number;
  oldest_due_at: string | null;
  paused: Pause | null;
}

export interface LoopItem {
  name: string;
  phase: string;
  every_s: number;
  multiplier: number;
  runs: number;
  failures: number;
  last_run_at: string | null;
  next_due_at: string | null;
  last_error: string | null;
  /** Its last 120 runs, oldest first, a letter each. */
  strip: string;
  worker: string | null;
  is_alive: boolean;
}

export interface RunItem {
  id: string;
  watch: string;
  task_id: Id;
  state: JobState;
  phase: string;
  outcome: string | null;
  reason: string | null;
  status: string | null;
  progress: string | null;
  looks: number;
  errors: number;
  created_at: string;
  next_look_at: string | null;
  ended_at: string | null;
  elapsed_s: number | null;
  cancel_requested: boolean;
  budget_s: number | null;
  budget_looks: number | null;
  deadline_at: string | null;
  seq: number;
  paused: Pause | null;
  /** What it looks at. */
  target: string | null;
  /** The fact that changed last. */
  last_fact: { name: string; value: unknown; at: string | null; look: number | null } | null;
}

export type ServiceStatus = "up" | "degraded" | "down" | "unknown" | "stale";

export interface LookItem {
  at: string;
  status: string;
  latency_ms: number | null;
  error: string | null;
  http_status: number | null;
}

export interface ServiceItem {
  name: string;
  target: string;
  status: ServiceStatus;
  healthy: boolean | null;
  since: string | null;
  looked_at: string | null;
  due_at: string | null;
  waits: string;
  latency_ms: number | null;
  error: string | null;
  http_status: number | null;
  breaker: "closed" | "open" | "half_open";
  failures: number;
  warnings: string[];
  every_s: number;
  timeout_s: number;
  format: string;
  depends_on: string[];
  incident: string | null;
  muted_until: string | null;
  paused: Pause | null;
  is_removed: boolean;
  uptime_24h: { percent: number | null; covered: number } | null;
  looks: LookItem[];
  /** Of the looks of the list. */
  p95_ms: number | null;
}

export interface IncidentItem {
  id: string;
  service: string;
  dependency: string | null;
  status: string;
  error: string | null;
  is_open: boolean;
  since: string;
  opened_at: string | null;
  closed_at: string | null;
  closed_why: string | null;
  acknowledged_at: string | null;
  acknowledged_by: string | null;
  held_by: string[];
  waits: string;
}

export interface SeriesPoint {
  at: string;
  counts?: Record<string, number>;
  count?: number;
  p50_s?: number;
  p95_s?: number;
  p99_s?: number;
  percent?: number;
  covered?: number;
}

export interface Series {
  of: string;
  step_s: number;
  items: SeriesPoint[];
}

export interface EventItem {
  position: string;
  at: string;
  kind: string;
  name: string;
  key: string | null;
  task_id: Id;
  seq: Id;
  body: Record<string, unknown>;
}

export interface Uptime {
  percent: number | null;
  /** The share of the span that is known, 0 to 1. */
  covered: number;
}

export interface ServiceDetail extends ServiceItem {
  definition: Record<string, unknown>;
  uptime: Record<string, Uptime>;
  latencies_24h_ms: Record<string, number | null>;
  beat_path: string | null;
}

export interface DependencyItem {
  name: string;
  canonical: string;
  status: string;
  healthy: boolean | null;
  skipped: boolean;
  latency_ms: number | null;
  type: string;
  impact: string | null;
  description: string | null;
  error_message: string | null;
  changed_at: string | null;
  seen_at: string | null;
}

export interface HistoryBucket {
  at: string;
  p50_ms: number | null;
  p95_ms: number | null;
  p99_ms: number | null;
}

export interface HistoryPage extends Page<LookItem> {
  buckets: HistoryBucket[];
}

export interface MaintenanceWindow {
  id: string;
  /** None: all. */
  services: string[];
  reason: string;
  starts_at: string | null;
  ends_at: string | null;
  days: string[];
  at: string | null;
  lasts_s: number;
  zone: string;
  is_active: boolean;
}

export interface GraphNode {
  name: string;
  is_service: boolean;
  status: string;
  since: string | null;
  roots: string[];
}

export interface GraphEdge {
  /** It depends on `target`. */
  source: string;
  target: string;
}

export interface GraphAnswer {
  nodes: GraphNode[];
  edges: GraphEdge[];
  is_cut: boolean;
}

export interface Decision {
  at: number;
  rule: string;
  why: string;
  next_s?: number | null;
  status?: string | null;
  facts?: Record<string, unknown>;
  /** The number of the look that it follows, and how long that took; of `times` equal ones, the last. */
  look?: number;
  took_s?: number;
  times?: number;
  first_at?: number | null;
}

export interface RunDetail extends RunItem {
  op: unknown;
  handle: unknown;
  value: unknown;
  evidence: unknown;
  counters: Record<string, number>;
  cleaned: boolean | null;
  log: Decision[];
  memory: Record<string, unknown>;
  facts: Record<string, unknown>;
  trail: TrailEntry[];
}

export interface ScheduleItem {
  name: string;
  job: string;
  timetable: string;
  missed: "skip" | "once" | "all";
  next_at: string | null;
  last_at: string | null;
  is_registered: boolean;
  task_id: Id;
}

export interface DoctorCheck {
  name: string;
  level: "ok" | "warning" | "problem";
  says: string;
  remedy: string;
}

export interface DoctorReport {
  ok: boolean;
  checks: DoctorCheck[];
}

export interface TableFinding {
  what: string;
  is_fit: boolean;
  is_needed: boolean;
  detail: string;
  ddl: string | null;
}

export interface PollerHealth {
  healthy: boolean;
  polling: boolean;
  consecutive_errors: number;
  last_error: string | null;
  polls_per_minute: number;
  rows_per_poll: number;
  lease_success_rate: number | null;
  lease_latency_s: number | null;
  push: boolean;
  waiting_s: number | null;
  running: number;
  slots: number;
}

export interface TableItem {
  name: string;
  has_handler: boolean;
  mapping: Record<string, string | null>;
  poller: PollerHealth | null;
  findings: TableFinding[] | null;
  /** Rows by status; `rows` is null where counting would take too long. */
  counts: { status: string; rows: number | null; is_capped: boolean }[] | null;
}

export interface PollingCost {
  watch: string;
  host: string | null;
  runs: number;
  looks: number;
  /** Looks that changed something, or ended the run. */
  changes: number;
  floors: { floor_s: number; looks: number; saved: number; later_s: number }[];
}

export interface PollingAnswer {
  items: PollingCost[];
  runs: number;
  is_capped: boolean;
  since: string | null;
}
