-- Instants (`_at`) are microseconds of the wall clock; `_ms` are milliseconds of the host's steady clock.
create table everpoll_tasks (
    id               integer primary key autoincrement, -- never reused: history and tokens refer to it
    due_at           integer not null,
    created_at       integer not null,
    owner            integer,                           -- the incarnation that holds it, or held it last
    started_at       integer,
    deadline_ms      integer,                           -- only while leased
    timeout_us       integer,
    sequence         integer not null default 0,        -- grows with every lease: half of the fence
    rank             integer not null,                  -- minus the priority
    attempt          integer not null default 0,
    rescues          integer not null default 0,
    version          integer not null,
    is_due           integer not null,                  -- 0: waits for due_at, outside of the ready index
    is_leased        integer not null default 0,
    cancel_requested integer not null default 0,
    kind             text not null,
    queue            text not null,
    name             text not null,
    key              text,
    args             text not null,
    memory           text,
    progress         text,
    trail            text                               -- a JSON array, or null for an empty one
) strict;

-- Rows that are not due are not in it: a million of them cost a lease nothing.
create index everpoll_tasks_ready on everpoll_tasks (queue, rank, due_at) where is_due = 1 and is_leased = 0;
create index everpoll_tasks_waiting on everpoll_tasks (queue, due_at) where is_due = 0;
-- As many entries as there are busy slots: the rescue and the counts read it instead of every row.
create index everpoll_tasks_leased on everpoll_tasks (queue) where is_leased = 1;
create index everpoll_tasks_cancels on everpoll_tasks (id) where cancel_requested = 1;
create unique index everpoll_tasks_key on everpoll_tasks (key) where key is not null;
-- What only watches pay for: they are few, and are looked for by people and by their keys.
create index everpoll_tasks_watches on everpoll_tasks (id) where kind = 'watch';

create table everpoll_history (
    id               integer primary key,
    ended_at         integer not null,
    state            text not null,
    due_at           integer not null,
    created_at       integer not null,
    owner            integer,
    started_at       integer,
    timeout_us       integer,
    sequence         integer not null,
    rank             integer not null,
    attempt          integer not null,
    rescues          integer not null,
    version          integer not null,
    was_leased       integer not null,                  -- 1: its owner held it when it ended
    cancel_requested integer not null,
    kind             text not null,
    queue            text not null,
    name             text not null,
    key              text,
    args             text not null,
    memory           text,
    progress         text,
    trail            text,
    result           text
) strict;

create index everpoll_history_unlucky on everpoll_history (state) where state <> 'done';
create index everpoll_history_watches on everpoll_history (id) where kind = 'watch';
create index everpoll_history_watch_keys on everpoll_history (key, ended_at) where kind = 'watch';
create index everpoll_history_watch_names on everpoll_history (name, ended_at) where kind = 'watch';

create table everpoll_workers (
    incarnation integer primary key,
    label       text not null,
    host        text not null,
    pid         integer not null,
    queues      text not null,                          -- a JSON array
    slots       integer not null,
    version     text not null,
    started_at  integer not null,
    beat_at     integer not null,                       -- for people
    beat_ms     integer not null,                       -- decides
    expires_ms  integer not null,
    stopped_at  integer
) strict;

create index everpoll_workers_current on everpoll_workers (expires_ms) where stopped_at is null;

create table everpoll_losses (
    id      integer primary key,
    task_id integer not null,
    at      integer not null,
    note    text not null
) strict;

create index everpoll_losses_task on everpoll_losses (task_id);

-- What happened to a task, numbered by the task (seq) and over all (id), in the order of commits.
create table everpoll_events (
    id      integer primary key autoincrement,          -- never reused: subscribers go on behind one
    task_id integer not null,
    seq     integer not null,
    at      integer not null,
    name    text not null,
    key     text,
    body    text not null,                              -- a JSON object
    unique (task_id, seq)
) strict;
