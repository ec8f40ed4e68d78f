-- Instants (`_at`) are microseconds of the wall clock. The columns have the names that they have in Postgres.
--
-- line: where a poll finds the row: 0 ready (or leased), 1 waiting for due_at; 3 due, and waits until its limit lets it
-- start (a leased one stays there); 5 waits for other tasks, and no poll reads it.
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
    cancels_itself   integer not null default 0,        -- a cancel only makes it due: its handler cleans up before its end
    is_revised       integer not null default 0,        -- changed while it runs: due again at once
    indexed          integer not null default 0,        -- found by kind, name and key, also after its end
    has_told         integer not null default 0,        -- it ended once, and has reported it to the task that waits for it
    then_id          integer,                           -- the task that waits for this one
    blockers         integer not null default 0,        -- how many tasks it still waits for
    takes            text,                              -- result or end: what it waits for
    limit_running    integer,                           -- how many of its limit may run at a time; null: any number
    limit_starts     integer,                           -- how many may start …
    limit_per_s      real,                              -- … in any stretch of so many seconds
    limit_key        text,
    kind             text not null,
    queue            text not null,
    name             text not null,
    key              text,
    error_type       text,                              -- the class of its last error, for lists; null: it never failed
    args             text not null,
    memory           text,
    progress         text,
    trail            text                               -- a JSON array, or null for an empty one
) strict;

-- Rows that are not due are not in it: a million of them cost a lease nothing.
create index everpoll_tasks_ready on everpoll_tasks (queue, rank, due_at) where line = 0 and is_leased = 0;
create index everpoll_tasks_waiting on everpoll_tasks (queue, due_at) where line = 1;
-- If more tasks fall due at once than one poll makes ready, the urgent ones come first. Priority 0 is not in it.
create index everpoll_tasks_waiting_ranked on everpoll_tasks (queue, rank, due_at) where line = 1 and rank <> 0;
-- As many entries as there are busy slots: the rescue and the counts read it instead of every row.
create index everpoll_tasks_leased on everpoll_tasks (queue) where is_leased = 1;
create index everpoll_tasks_cancels on everpoll_tasks (id) where cancel_requested = 1;
create unique index everpoll_tasks_key on everpoll_tasks (key, kind) where key is not null;
create index everpoll_tasks_indexed on everpoll_tasks (kind, id) where indexed = 1;
create index everpoll_tasks_error on everpoll_tasks (error_type) where error_type is not null;
create index everpoll_tasks_retrying on everpoll_tasks (id) where error_type is not null;
create index everpoll_tasks_limited on everpoll_tasks (queue, rank, limit_key, due_at) where line = 3 and is_leased = 0;
-- Polls count running tasks here: no counter stores how much of a limit is in use.
create index everpoll_tasks_limited_running on everpoll_tasks (limit_key) where is_leased = 1 and limit_key is not null;
-- Tasks that wait for others are counted by queue.
create index everpoll_tasks_blocked on everpoll_tasks (queue) where line = 5;
create index everpoll_tasks_then on everpoll_tasks (then_id) where then_id is not null;

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
    then_id          integer,
    takes            text,
    limit_running    integer,
    limit_starts     integer,
    limit_per_s      real,
    limit_key        text,
    kind             text not null,
    queue            text not null,
    name             text not null,
    key              text,
    error_type       text,
    args             text not null,
    memory           text,
    progress         text,
    trail            text,
    result           text
) strict;

create index everpoll_history_error on everpoll_history (error_type) where error_type is not null;
create index everpoll_history_then on everpoll_history (then_id) where then_id is not null;
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
    beats       integer not null default 0,             -- if it stops growing, another worker declares this one dead
    started_at  integer not null,
    beat_at     integer not null,                       -- only shown: no decision uses it
    stopped_at  integer,                                -- signed off, or declared dead
    loops       text,                                   -- those of its process, a JSON array
    names       text                                    -- the tasks that it can run, a JSON array; null: it did not say
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
    id      integer primary key autoincrement,          -- never reused: subscribers go on after one
    task_id integer not null,
    seq     integer not null,
    at      integer not null,
    kind    text not null,                              -- of the task; "queue", "loop", "bulk" … without one
    name    text not null,
    key     text,
    body    text not null,                              -- a JSON object
    unique (task_id, seq)
) strict;

-- Up to which number events were dropped because of their age: a reader whose position is lower has missed some.
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

-- Records about services. Instants (`_ms`) are milliseconds since the epoch, `hour` and `day` count hours and
-- days since then. The columns have the names that they have in Postgres.

create table everpoll_health_services (
    id           integer primary key autoincrement,     -- never reused: a forgotten service may leave rows behind
    name         text not null unique,
    recent       blob,                                  -- its last looks, packed, for sparklines
    latencies    blob,                                  -- of its dependencies, at the last look that was rolled up
    latencies_ms integer not null default -1            -- when that was
) strict;

-- Looks that are not rolled up yet, in the order in which they were recorded: a batch fills a page or two. With
-- (service, at_ms) as the key each look would change a page of its own: 20 us a look among 10,000 services, against 8.
-- The looks at one service are a chain in the order of their instants, from everpoll_health_heads backwards.
create table everpoll_health_looks (
    id          integer primary key,                    -- grows: the newest row is never deleted
    previous    integer,                                -- the look at the same service before this one
    service     integer not null,
    at_ms       integer not null,
    span_ms     integer not null,                       -- the time that it stands for
    latency_us  integer,
    status      integer not null,                       -- 0 up, 1 unknown, 2 degraded, 3 down
    http_status integer,
    error       text,
    latencies   blob                                    -- of dependencies, by name
) strict;

create table everpoll_health_heads (
    service   integer primary key,
    look      integer not null,                         -- where its chain begins: its newest look
    at_ms     integer not null,                         -- when that was
    rolled    integer not null default 0,               -- looks up to this id are rolled up: its chain ends before them
    open_ms   integer not null,                         -- its oldest look that is not rolled up; meaningless without one
    packed_ms integer not null default -1               -- its newest look that is rolled up
) strict;

-- By hour first: a roll-up adds to the end, and what is old is in one piece. A service's row of an hour is one seek.
create table everpoll_health_packed (
    hour      integer not null,
    service   integer not null,
    size      integer not null,                         -- how many looks
    looks     blob not null,
    latencies blob,                                     -- of dependencies
    primary key (hour, service)
) strict;

create table everpoll_health_minutes (
    hour    integer not null,
    service integer not null,
    minutes blob not null,                              -- the rollups of its minutes, packed
    primary key (hour, service)
) strict;

create table everpoll_health_hours (
    hour integer not null,
    service integer not null,
    up integer not null, degraded integer not null, down integer not null, unknown integer not null,
    up_ms integer not null, degraded_ms integer not null, down_ms integer not null, unknown_ms integer not null,
    timed integer not null, latency_sum_us integer not null, latency_min_us integer, latency_max_us integer,
    histogram blob not null,
    primary key (hour, service)
) strict, without rowid;

-- By service first: a list of all services reads some months of each.
create table everpoll_health_days (
    day integer not null,
    service integer not null,
    up integer not null, degraded integer not null, down integer not null, unknown integer not null,
    up_ms integer not null, degraded_ms integer not null, down_ms integer not null, unknown_ms integer not null,
    timed integer not null, latency_sum_us integer not null, latency_min_us integer, latency_max_us integer,
    histogram blob not null,
    primary key (service, day)
) strict, without rowid;

create index everpoll_health_days_old on everpoll_health_days (day);

create table everpoll_health_dependencies (
    service       integer not null,
    name          text not null,
    at_ms         integer not null,                     -- when the look was that reported it
    changed_ms    integer not null,
    seen_ms       integer not null,
    latency_us    integer,
    vanished      integer not null,
    skipped       integer not null,
    status        text not null,
    type          text not null,
    impact        text,
    description   text,
    contact       text,                                 -- JSON, as the next two
    check_details text,
    error         text,
    error_message text,
    primary key (service, name)
) strict;

create index everpoll_health_dependencies_vanished on everpoll_health_dependencies (seen_ms) where vanished = 1;

create table everpoll_health_errors (
    service       integer not null,
    dependency    text not null,
    at_ms         integer not null,
    error         text,                                 -- JSON; without error and message it recovered
    error_message text,
    primary key (service, dependency, at_ms)
) strict;

create index everpoll_health_errors_old on everpoll_health_errors (at_ms);

create table everpoll_health_aliases (
    alias     text primary key,
    canonical text not null
) strict, without rowid;

create table everpoll_health_windows (
    id   text primary key,
    body text not null                                  -- JSON
) strict;

-- One row: all records before these hours and this instant were pruned.
create table everpoll_health_horizon (
    id        integer primary key check (id = 1),
    looks     integer not null,
    minutes   integer not null,
    hours     integer not null,
    errors_ms integer not null
) strict;
