-- Every queue that has a ready, waiting or limited task, by jumping from name to name in the indexes.
create function everpoll.queue_names() returns setof text
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with recursive names(queue) as (
        select least((select t.queue from everpoll.tasks t where t.line = 0 order by t.queue limit 1),
                     (select t.queue from everpoll.tasks t where t.line = 1 order by t.queue limit 1),
                     (select t.queue from everpoll.tasks t where t.line = 3 order by t.queue limit 1))
        union all
        select least((select t.queue from everpoll.tasks t
                       where t.line = 0 and t.queue > n.queue order by t.queue limit 1),
                     (select t.queue from everpoll.tasks t
                       where t.line = 1 and t.queue > n.queue order by t.queue limit 1),
                     (select t.queue from everpoll.tasks t
                       where t.line = 3 and t.queue > n.queue order by t.queue limit 1))
          from names n where n.queue is not null)
    select n.queue from names n where n.queue is not null
$$;

-- Where the tasks lie that these workers leased a moment ago, and those with a limit that they hold: among the ready
-- tasks, among those that waited and are due, and in line 4. No index has the incarnation of all: this walks over them.
create function everpoll.leased_lately(owners bigint[]) returns tid[]
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select array(select t.ctid from everpoll.tasks t where t.line = 0 and t.is_leased and t.owner = any(owners))
        || array(select t.ctid from everpoll.tasks t where t.line = 4 and t.owner = any(owners))
        || array(select t.ctid from everpoll.queue_names() q(queue) cross join lateral (
               select one.ctid, one.is_leased, one.owner from everpoll.tasks one
               where one.line = 1 and one.queue = q.queue and one.due_at <= now() order by one.queue, one.due_at) t
           where t.is_leased and t.owner = any(owners))
$$;

-- The first 100 priorities of the ready tasks of each queue, by jumping from rank to rank.
create function everpoll.first_ranks() returns table (queue text, rank int)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with recursive ranks(queue, rank, nth) as (
        select q.queue, first.rank, 1 from everpoll.queue_names() q(queue) cross join lateral (
            select t.rank from everpoll.tasks t where t.line = 0 and t.queue = q.queue
            order by t.queue, t.rank limit 1) first
        union all
        select r.queue, next.rank, r.nth + 1 from ranks r cross join lateral (
            select t.rank from everpoll.tasks t where t.line = 0 and t.queue = r.queue and t.rank > r.rank
            order by t.queue, t.rank limit 1) next
        where r.nth < 100)
    select r.queue, r.rank from ranks r
$$;

-- How many tasks each worker runs in each queue. Held tasks have an index. Tasks that were leased a moment ago stand at
-- the head of the line of their priority: the first 1,000 entries of each of the first 100 priorities are looked at, and
-- the first 1,000 that waited.
create function everpoll.running(most int) returns table (queue text, owner bigint, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with leased(queue, owner) as (
        select * from (select t.queue, t.owner from everpoll.tasks t where t.line = 2 limit most) held
        union all
        select * from (select t.queue, t.owner from everpoll.tasks t where t.line = 4 limit most) limited
        union all
        select r.queue, head.owner from everpoll.first_ranks() r cross join lateral (
            select t.owner from everpoll.tasks t where t.line = 0 and t.queue = r.queue and t.rank = r.rank
            order by t.queue, t.rank, t.due_at, t.id limit 1000) head
        where head.owner is not null
        union all
        select q.queue, head.owner from everpoll.queue_names() q(queue) cross join lateral (
            select t.owner from everpoll.tasks t where t.line = 1 and t.queue = q.queue and t.due_at <= now()
            order by t.queue, t.due_at limit 1000) head
        where head.owner is not null)
    select l.queue, l.owner, count(*) from leased l group by l.queue, l.owner
$$;

-- The ids of running tasks, found in the same way.
create function everpoll.running_ids(most int) returns setof bigint
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select * from (select t.id from everpoll.tasks t where t.line = 2 limit most) held
    union all
    select * from (select t.id from everpoll.tasks t where t.line = 4 limit most) limited
    union all
    select head.id from everpoll.first_ranks() r cross join lateral (
        select t.id, t.is_leased from everpoll.tasks t where t.line = 0 and t.queue = r.queue and t.rank = r.rank
        order by t.queue, t.rank, t.due_at, t.id limit 1000) head
    where head.is_leased
    union all
    select head.id from everpoll.queue_names() q(queue) cross join lateral (
        select t.id, t.is_leased from everpoll.tasks t where t.line = 1 and t.queue = q.queue and t.due_at <= now()
        order by t.queue, t.due_at limit 1000) head
    where head.is_leased
$$;

-- How many tasks of each queue are ready, up to `most`: the head of each line is looked at, never everything. Each queue
-- is counted separately: one aggregate over the heads of all took longer than reading them.
create function everpoll.ready(most int) returns table (queue text, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select q.queue, counted.tasks from everpoll.queue_names() q(queue) cross join lateral (
        select count(*) as tasks from (
            select from everpoll.tasks t where t.line = 0 and not t.is_leased and t.queue = q.queue
            order by t.queue, t.rank, t.due_at, t.id limit most) head) counted
    where counted.tasks > 0
$$;

-- How many due tasks of each queue wait until their limit lets them start, up to `most`.
create function everpoll.limited(most int) returns table (queue text, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select q.queue, counted.tasks from everpoll.queue_names() q(queue) cross join lateral (
        select count(*) as tasks from (
            select from everpoll.tasks t where t.line = 3 and t.queue = q.queue
            order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit most) head) counted
    where counted.tasks > 0
$$;

-- How many tasks of each queue wait, up to `most`: those whose time has come apart from the others. What is not due is
-- leased by no worker, so the index alone counts it: reading 50,000 rows for that took 30 ms, and takes 5 without them.
create function everpoll.waiting(most int) returns table (queue text, is_late boolean, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select q.queue, counted.is_late, counted.tasks from everpoll.queue_names() q(queue) cross join lateral (
        select true as is_late, count(*) as tasks from (
            select from everpoll.tasks t where t.line = 1 and t.queue = q.queue and t.due_at <= now()
                and not t.is_leased
            order by t.queue, t.due_at limit most) late
        union all
        select false, count(*) from (
            select from everpoll.tasks t where t.line = 1 and t.queue = q.queue and t.due_at > now()
            order by t.queue, t.due_at limit most) head) counted
    where counted.tasks > 0
$$;
