-- Tasks that count for a limit. They never are in lines 0 and 2, so that looks for tasks without one do not meet them.
--   line 3: due, and waits until its limit lets it start
--   line 4: leased. A lease of such a task changes its line, so it is not a HOT update: only users of limits pay.
alter table everpoll.tasks
    add column limit_key     text collate "C",
    add column limit_running int,       -- how many may run at a time; null: any number
    add column limit_starts  int,       -- how many may start …
    add column limit_per_s   float8;    -- … in any stretch of so many seconds
alter table everpoll.history
    add column limit_key     text collate "C",
    add column limit_running int,
    add column limit_starts  int,
    add column limit_per_s   float8;

create index tasks_limited on everpoll.tasks (queue, rank, limit_key, due_at, id) where line = 3;
-- What runs is counted here: nothing else says how much of a limit is in use.
create index tasks_limited_running on everpoll.tasks (limit_key) where line = 4;

-- When tasks of a key have started, as long as a rate counts that: starts close to one another are one row.
create table everpoll.starts (
    limit_key text collate "C" not null,
    began_at  timestamptz not null,
    at        timestamptz not null,     -- the last start of this row
    until_at  timestamptz not null,     -- no rate counts it after this
    starts    int not null,
    primary key (limit_key, began_at)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

create index starts_old on everpoll.starts (until_at);
