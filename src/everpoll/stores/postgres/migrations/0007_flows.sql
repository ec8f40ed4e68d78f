-- Tasks that wait for other tasks.
--   line 5: it waits for them, and no look reads it.
-- Tasks that no other waits for have no entry in these indexes.
alter table everpoll.tasks
    add column then_id  bigint,                          -- the task that waits for this one
    add column has_told boolean not null default false,  -- it ended once, and has reported it
    add column takes    text collate "C",                -- result or end: what it waits for
    add column blockers int not null default 0;          -- how many tasks it still waits for
alter table everpoll.history
    add column then_id  bigint,
    add column takes    text collate "C";

create index tasks_then on everpoll.tasks (then_id) where then_id is not null;
create index history_then on everpoll.history (then_id) where then_id is not null;
