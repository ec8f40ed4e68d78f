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

-- The row addresses of tasks that these workers leased a moment ago (among the ready tasks, and among the waiting tasks
-- that are due), and of limited tasks that they hold (line 4). No index has the owner of all of them: this reads each row.
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

-- The first `most` priorities of the ready tasks, those of all queues in turn, by jumping from rank to rank.
create function everpoll.first_ranks(most int) returns table (queue text, rank int)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with recursive ranks(queue, rank) as (
        select q.queue, first.rank from everpoll.queue_names() q(queue) cross join lateral (
            select t.rank from everpoll.tasks t where t.line = 0 and t.queue = q.queue
            order by t.queue, t.rank limit 1) first
        union all
        select r.queue, next.rank from ranks r cross join lateral (
            select t.rank from everpoll.tasks t where t.line = 0 and t.queue = r.queue and t.rank > r.rank
            order by t.queue, t.rank limit 1) next)
    select r.queue, r.rank from ranks r limit most
$$;

-- Tasks that were leased a moment ago and are still among the ready and the waiting ones. No index has their owner:
-- that would make each lease 1.5 times as expensive. They stand at the head of the line of their priority, behind the
-- few that came back with an earlier due time. So each line is read from its head, until many entries in a row are not
-- leased: 1,000 in each of up to 20 lines, fewer where there are more, 10 at least.
-- Where `visits` entries were read, or there are more than `most_ranks` lines, a last row without an owner says that
-- there may be more.
create function everpoll.fresh_leases(visits int default 100000, most_ranks int default 5000)
returns table (queue text, owner bigint, id bigint)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare left_over int := visits; ready int; patience int; in_a_row int; line record; task record;
    in_queues text[]; ranks int[];
begin
    select array_agg(r.queue), array_agg(r.rank) into in_queues, ranks from everpoll.first_ranks(most_ranks + 1) r;
    ready := coalesce(cardinality(ranks), 0);
    patience := greatest(10, least(1000, visits / 5 / greatest(1, ready)));
    for line in
        -- One statement passes over the lines without leases: opening a cursor for each of 1,000 lines takes 40 ms.
        select r.queue as name, r.rank from unnest(in_queues[:most_ranks], ranks[:most_ranks]) r(queue, rank)
         where exists (
            select from (
                select t.is_leased from everpoll.tasks t where t.line = 0 and t.queue = r.queue and t.rank = r.rank
                order by t.queue, t.rank, t.due_at, t.id limit patience) head
             where head.is_leased)
        union all
        select q.queue, null from everpoll.queue_names() q(queue)  -- those that wait, and are due
    loop
        in_a_row := 0;
        for task in
            (select t.is_leased, t.owner, t.id from everpoll.tasks t
              where line.rank is not null and t.line = 0 and t.queue = line.name and t.rank = line.rank
              order by t.queue, t.rank, t.due_at, t.id)
            union all
            (select t.is_leased, t.owner, t.id from everpoll.tasks t
              where line.rank is null and t.line = 1 and t.queue = line.name and t.due_at <= now()
              order by t.queue, t.due_at)
        loop
            left_over := left_over - 1;
            in_a_row := in_a_row + 1;
            if task.is_leased then
                in_a_row := 0;
                queue := line.name;
                owner := task.owner;
                id := task.id;
                return next;
            end if;
            exit when in_a_row >= patience or left_over <= 0;
        end loop;
        exit when left_over <= 0;
    end loop;
    if left_over <= 0 or ready > most_ranks then
        queue := null;
        owner := null;
        id := null;
        return next;
    end if;
end $$;

-- How many tasks each worker runs in each queue; a row without a queue: there may be more. Held tasks have an index.
create function everpoll.running(most int) returns table (queue text, owner bigint, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with leased(queue, owner) as (
        select * from (select t.queue, t.owner from everpoll.tasks t where t.line = 2 limit most) held
        union all
        select * from (select t.queue, t.owner from everpoll.tasks t where t.line = 4 limit most) limited
        union all
        select f.queue, f.owner from everpoll.fresh_leases() f)
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
    select f.id from everpoll.fresh_leases() f where f.id is not null
$$;

-- How many tasks of each queue are ready, up to `most`: reads only the head of each line. Counts each queue separately:
-- one aggregate over the heads of all took longer than reading them.
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

-- How many tasks of each queue wait for others to end, up to `most`; by jumping from queue to queue.
create function everpoll.blocked(most int) returns table (queue text, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with recursive names(queue) as (
        (select t.queue from everpoll.tasks t where t.line = 5 order by t.queue limit 1)
        union all
        select (select t.queue from everpoll.tasks t where t.line = 5 and t.queue > n.queue order by t.queue limit 1)
          from names n where n.queue is not null)
    select n.queue, counted.tasks from names n cross join lateral (
        select count(*) as tasks from (
            select from everpoll.tasks t where t.line = 5 and t.queue = n.queue limit most) head) counted
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
