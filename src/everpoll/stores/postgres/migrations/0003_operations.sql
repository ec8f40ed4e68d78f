-- Of the task that an event is about; "queue", "loop", "bulk" … where it is about none. Events that an earlier release
-- writes beside this one have the default.
alter table everpoll.events add column kind text collate "C" not null default 'job';
update everpoll.events e set kind = t.kind from everpoll.tasks t where t.id = e.task_id;
update everpoll.events e set kind = h.kind from everpoll.history h where h.id = e.task_id;

-- Up to which id events were dropped because of their age: a reader that stands before it has missed some.
create table everpoll.feed_horizon (
    one    boolean primary key default true check (one),
    pruned bigint not null
);

-- Queues from which no worker leases. Nearly always empty: each lease asks.
create table everpoll.pauses (
    queue     text collate "C" primary key,
    reason    text not null,
    paused_by text not null,
    at        timestamptz not null default clock_timestamp()
);
