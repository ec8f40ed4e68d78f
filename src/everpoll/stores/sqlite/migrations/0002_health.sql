-- What is recorded about services. Instants (`_ms`) are milliseconds since the epoch, `hour` and `day` count hours and
-- days since then. The columns have the names that they have in Postgres.

create table everpoll_health_services (
    id           integer primary key autoincrement,     -- never reused: what is forgotten may leave rows behind
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
    at_ms         integer not null,                     -- the look that said so
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

-- One row: what is before these hours, and this instant, was pruned.
create table everpoll_health_horizon (
    id        integer primary key check (id = 1),
    looks     integer not null,
    minutes   integer not null,
    hours     integer not null,
    errors_ms integer not null
) strict;
