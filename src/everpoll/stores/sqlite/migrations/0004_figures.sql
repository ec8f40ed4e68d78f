-- The class of a task's last error, for lists. A task that never failed has none, and no entry in these indexes.
alter table everpoll_tasks add column error_type text;
alter table everpoll_history add column error_type text;

create index everpoll_tasks_error on everpoll_tasks (error_type) where error_type is not null;
create index everpoll_tasks_retrying on everpoll_tasks (id) where error_type is not null;
create index everpoll_history_error on everpoll_history (error_type) where error_type is not null;

-- What workers did, by minute and hour; `began` is in seconds since the epoch. An empty name stands for all of a queue,
-- an empty name and queue for all of a kind.
create table everpoll_figures (
    span_s      integer not null,
    kind        text not null,
    name        text not null,
    queue       text not null,
    began       integer not null,
    incarnation integer not null,
    counts      text not null,                          -- a JSON object: how often which outcome
    waited      blob not null,                          -- histograms of microseconds
    ran         blob not null,
    primary key (span_s, kind, name, queue, began, incarnation)
) strict, without rowid;

create index everpoll_figures_age on everpoll_figures (span_s, began);

alter table everpoll_workers add column loops text;     -- those of its process, a JSON array
