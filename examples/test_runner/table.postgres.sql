create table if not exists execution_jobs (
  id             bigint generated always as identity primary key,
  status         text not null default 'queued',
  recording      jsonb not null, -- a name and steps
  csv_data       text,           -- one run for every row below its header
  config         jsonb,          -- base_url, timeout_s, open_timeout_s
  results        jsonb,          -- how many passed and failed, and each row
  worker_id      text,
  created_at     timestamptz not null default now(),
  started_at     timestamptz,
  last_heartbeat timestamptz,
  finished_at    timestamptz,
  retry_count    integer not null default 0,
  error          text
);

create index if not exists execution_jobs_queue on execution_jobs (status, created_at);
