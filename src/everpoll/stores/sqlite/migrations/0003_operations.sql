-- Of the task that an event is about; "queue", "loop", "bulk" … where it is about none. Events that an earlier release
-- writes beside this one have the default.
alter table everpoll_events add column kind text not null default 'job';
update everpoll_events set kind = coalesce(
    (select t.kind from everpoll_tasks t where t.id = task_id),
    (select h.kind from everpoll_history h where h.id = task_id), kind);

-- Up to which number events were dropped because of their age: a reader that stands before it has missed some.
create table everpoll_feed_horizon (
    one    integer primary key check (one = 1),
    pruned integer not null
) strict;

-- Queues from which no worker leases.
create table everpoll_pauses (
    queue     text primary key,
    reason    text not null,
    paused_by text not null,
    at        integer not null
) strict;
