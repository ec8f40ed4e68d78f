create table if not exists audits (
  id                    bigint generated always as identity primary key,
  url                   text not null,
  status                text not null default 'pending',
  priority              integer not null default 0, -- higher first: who waits at the screen, who pays
  score                 integer,                    -- 0 to 100
  report                jsonb,                      -- every check with its points and its finding
  error                 text,
  created_at            timestamptz not null default now(),
  finished_at           timestamptz,
  processing_started_at timestamptz,
  processing_worker_id  text,
  last_heartbeat        timestamptz,
  retry_count           integer not null default 0,
  next_attempt_at       timestamptz                 -- after a failure: not before
);

create index if not exists audits_queue on audits (status, priority desc, created_at);
create index if not exists audits_due on audits (status, next_attempt_at);
