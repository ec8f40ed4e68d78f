-- The class of a task's last error, for lists. A task that never failed has none, and no entry in these indexes.
alter table everpoll.tasks add column error_type text collate "C";
alter table everpoll.history add column error_type text collate "C";

create index tasks_error on everpoll.tasks (error_type, id) where error_type is not null;
create index tasks_retrying on everpoll.tasks (id) where error_type is not null;
create index history_error on everpoll.history (error_type, id) where error_type is not null;

-- What workers did, by minute and hour; `began` is in seconds since the epoch. An empty name stands for all of a queue,
-- an empty name and queue for all of a kind.
create table everpoll.figures (
    span_s      int not null,
    kind        text collate "C" not null,
    name        text collate "C" not null,
    queue       text collate "C" not null,
    began       bigint not null,
    incarnation bigint not null,
    counts      text not null,                       -- a JSON object: how often which outcome
    waited      bytea not null,                      -- histograms of microseconds
    ran         bytea not null,
    primary key (span_s, kind, name, queue, began, incarnation)
) with (fillfactor = 70);

create index figures_age on everpoll.figures (span_s, began);

alter table everpoll.workers add column loops text;  -- those of its process, a JSON array
