-- Instants (`_at`) are microseconds of the wall clock. The columns have the names that they have in Postgres.
--
-- line: where a look finds the row: 0 ready (or leased), 1 waiting for due_at.
create table everpoll_tasks (
    id               integer primary key autoincrement, -- never reused: history and tokens refer to it
    due_at           integer not null,
    created_at       integer not null,
    owner            integer,                           -- the incarnation that holds it, or held it last
    started_at       integer,
    timeout_s        real,
    sequence         integer not null default 0,        -- grows with every lease: half of the fence
    rank             integer not null,                  -- minus the priority
    attempt          integer not null default 0,
    rescues          integer not null default 0,
    version          integer not null,
    line             integer not null,
    is_leased        integer not null default 0,
    cancel_requested integer not null default 0,
    cancels_itself   integer not null default 0,        -- a cancel only asks it: it has something to do before its end
    is_revised       integer not null default 0,        -- changed while it runs: due again at once
    indexed          integer not null default 0,        -- found by kind, name and key, also after its end
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
create index everpoll_tasks_ready on everpoll_tasks (queue, rank, due_at) where line = 0 and is_leased = 0;
create index everpoll_tasks_waiting on everpoll_tasks (queue, due_at) where line = 1;
-- Where more tasks fall due at once than one look makes ready, the urgent ones come first. Priority 0 is not in it.
create index everpoll_tasks_waiting_ranked on everpoll_tasks (queue, rank, due_at) where line = 1 and rank <> 0;
-- As many entries as there are busy slots: the rescue and the counts read it instead of every row.
create index everpoll_tasks_leased on everpoll_tasks (queue) where is_leased = 1;
create index everpoll_tasks_cancels on everpoll_tasks (id) where cancel_requested = 1;
create unique index everpoll_tasks_key on everpoll_tasks (key, kind) where key is not null;
create index everpoll_tasks_indexed on everpoll_tasks (kind, id) where indexed = 1;

create table everpoll_history (
    id               integer primary key,
    ended_at         integer not null,
    state            text not null,
    due_at           integer not null,
    created_at       integer not null,
    owner            integer,
    started_at       integer,
    timeout_s        real,
    sequence         integer not null,
    rank             integer not null,
    attempt          integer not null,
    rescues          integer not null,
    version          integer not null,
    was_leased       integer not null,                  -- 1: its owner held it when it ended
    cancel_requested integer not null,
    cancels_itself   integer not null,
    indexed          integer not null,
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

create index everpoll_history_ill on everpoll_history (state) where state <> 'done';
create index everpoll_history_indexed on everpoll_history (kind, id) where indexed = 1;
create index everpoll_history_key on everpoll_history (kind, key, ended_at) where indexed = 1;
create index everpoll_history_name on everpoll_history (kind, name, ended_at) where indexed = 1;

create table everpoll_workers (
    incarnation integer primary key,
    label       text not null,
    host        text not null,
    pid         integer not null,
    queues      text not null,                          -- a JSON array
    slots       integer not null,
    version     text not null,
    lease_s     real not null,
    beats       integer not null default 0,             -- another worker that sees it stand still decides
    started_at  integer not null,
    beat_at     integer not null,                       -- for people
    stopped_at  integer                                 -- signed off, or declared dead
) strict;

create index everpoll_workers_current on everpoll_workers (incarnation) where stopped_at is null;

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
