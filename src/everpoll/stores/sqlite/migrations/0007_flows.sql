-- Tasks that wait for other tasks. line 5: it waits for them, and no look reads it. Tasks that no other waits for have no
-- entry in these indexes.
alter table everpoll_tasks add column then_id integer;                         -- the task that waits for this one
alter table everpoll_tasks add column has_told integer not null default 0;     -- it ended once, and has reported it
alter table everpoll_tasks add column takes text;                              -- result or end: what it waits for
alter table everpoll_tasks add column blockers integer not null default 0;     -- how many tasks it still waits for
alter table everpoll_history add column then_id integer;
alter table everpoll_history add column takes text;

create index everpoll_tasks_then on everpoll_tasks (then_id) where then_id is not null;
create index everpoll_history_then on everpoll_history (then_id) where then_id is not null;
