pragma journal_mode = wal;

create table if not exists audits (
  id                    integer primary key,
  url                   text not null,
  status                text not null default 'pending',
  priority              integer not null default 0, -- higher first: who waits at the screen, who pays
  score                 integer,                    -- 0 to 100
  report                text,                       -- JSON: every check with its points and its finding
  error                 text,
  created_at            text not null default current_timestamp,
  finished_at           text,
  processing_started_at text,
  processing_worker_id  text,
  last_heartbeat        text,
  retry_count           integer not null default 0,
  next_attempt_at       text                        -- after a failure: not before
);

create index if not exists audits_queue on audits (status, priority desc, created_at);
create index if not exists audits_due on audits (status, next_attempt_at);
