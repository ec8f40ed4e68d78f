-- Tasks that count for a limit. line 3: due, and waits until its limit lets it start; a leased one stays there. Tasks
-- without a limit have no entry in these indexes, and looks for them read none.
alter table everpoll_tasks add column limit_key text;
alter table everpoll_tasks add column limit_running integer;     -- how many may run at a time; null: any number
alter table everpoll_tasks add column limit_starts integer;      -- how many may start …
alter table everpoll_tasks add column limit_per_s real;          -- … in any stretch of so many seconds
alter table everpoll_history add column limit_key text;
alter table everpoll_history add column limit_running integer;
alter table everpoll_history add column limit_starts integer;
alter table everpoll_history add column limit_per_s real;

create index everpoll_tasks_limited on everpoll_tasks (queue, rank, limit_key, due_at) where line = 3 and is_leased = 0;
-- What runs is counted here: nothing else says how much of a limit is in use.
create index everpoll_tasks_limited_running on everpoll_tasks (limit_key) where is_leased = 1 and limit_key is not null;

-- When tasks of a key have started, as long as a rate counts that: starts close to one another are one row.
create table everpoll_starts (
    limit_key text not null,
    began_at  integer not null,
    at        integer not null,                         -- the last start of this row
    until_at  integer not null,                         -- no rate counts it after this
    starts    integer not null,
    primary key (limit_key, began_at)
) strict, without rowid;

create index everpoll_starts_old on everpoll_starts (until_at);
