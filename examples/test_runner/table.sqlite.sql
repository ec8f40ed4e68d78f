pragma journal_mode = wal;

create table if not exists execution_jobs (
  id             integer primary key,
  status         text not null default 'queued',
  recording      text not null, -- JSON: a name and steps
  csv_data       text,          -- one run for every row below its header
  config         text,          -- JSON: base_url, timeout_s, open_timeout_s
  results        text,          -- JSON: how many passed and failed, and each row
  worker_id      text,
  created_at     text not null default current_timestamp,
  started_at     text,
  last_heartbeat text,
  finished_at    text,
  retry_count    integer not null default 0,
  error          text
);

create index if not exists execution_jobs_queue on execution_jobs (status, created_at);
