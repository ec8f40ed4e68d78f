-- Promotes tasks: moves waiting tasks (line 1) of the queues `wanted` whose due time has come to the ready ones (line 0),
-- or, if they count for a limit, to line 3. At most `most` tasks a call: first those with a priority above 0, then the
-- others by due time.
--
-- Parameters:
--   waits_from[i]: no task of the queue wanted[i] waits with a due time before this: the search starts here.
-- Answers:
--   promoted: how many tasks were promoted. is_all: no due task was left behind.
--   next_at: the due time of the next waiting task; now() if due ones are left; null: none waits.
--   done_queues[j], done_until[j]: every task of that queue that was due before that instant is promoted. The caller
--   passes it as waits_from next time, because index entries of promoted tasks stay while another transaction holds an
--   old snapshot.
--   made_queues[j], made_from[j]: the earliest due time of the tasks of that queue that this call promoted.
create function everpoll.promote(most int, wanted text[], waits_from timestamptz[], out next_at timestamptz,
    out promoted int, out is_all boolean, out done_queues text[], out done_until timestamptz[],
    out made_queues text[], out made_from timestamptz[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    due_queues text[] := wanted; due_from timestamptz[] := waits_from; lowest int; more int;
    more_queues text[]; more_from timestamptz[];
begin
    promoted := 0;
    is_all := true;
    if cardinality(wanted) > 16 then
        -- Many queues: visit only those that have a waiting task, by jumping from name to name in the index.
        with recursive heads(queue, due_at) as (
            (select t.queue, t.due_at from everpoll.tasks t where t.line = 1 and not t.is_leased
             order by t.queue, t.due_at limit 1)
            union all
            select n.queue, n.due_at from heads h cross join lateral (
                select t.queue, t.due_at from everpoll.tasks t where t.line = 1 and not t.is_leased and t.queue > h.queue
                order by t.queue, t.due_at limit 1) n)
        select min(h.due_at), array_agg(h.queue) filter (where h.due_at <= now()),
               array_agg('-infinity'::timestamptz) filter (where h.due_at <= now())
          into next_at, due_queues, due_from from heads h join unnest(wanted) w(queue) on w.queue = h.queue;
    else
        select min(n.due_at) into next_at from unnest(wanted, waits_from) q(queue, wait_from) cross join lateral (
            select t.due_at from everpoll.tasks t
            where t.line = 1 and t.queue = q.queue and t.due_at >= q.wait_from and not t.is_leased
            order by t.queue, t.due_at limit 1) n;
    end if;
    if next_at is null or next_at > now() then return; end if;

    -- Tasks with a priority above 0, rank by rank; each rank is found by a jump in the index. Mostly there are none.
    with recursive ranks(queue, rank) as (
        select q.queue, first.rank from unnest(due_queues) q(queue) cross join lateral (
            select t.rank from everpoll.tasks t where t.line = 1 and t.rank <> 0 and t.queue = q.queue and t.rank < 0
            order by t.queue, t.rank limit 1) first
        union all
        select r.queue, next.rank from ranks r cross join lateral (
            select t.rank from everpoll.tasks t
            where t.line = 1 and t.rank <> 0 and t.queue = r.queue and t.rank > r.rank and t.rank < 0
            order by t.queue, t.rank limit 1) next),
    pick as materialized (
        select w.ctid from (select * from ranks r order by r.rank limit 1000) r cross join lateral (
            select t.ctid from everpoll.tasks t
            where t.line = 1 and t.rank <> 0 and t.queue = r.queue and t.rank = r.rank and t.due_at <= now()
              and not t.is_leased
            order by t.queue, t.rank, t.due_at limit most for update skip locked) w limit most),
    got as (
        update everpoll.tasks t set line = case when t.limit_key is null then 0 else 3 end
        where t.ctid = any(array(select ctid from pick)) and t.line = 1 and not t.is_leased returning t.queue, t.due_at),
    made as (select g.queue, count(*) as tasks, min(g.due_at) as due_at from got g group by g.queue)
    select coalesce(sum(m.tasks), 0), array_agg(m.queue), array_agg(m.due_at) into promoted, made_queues, made_from from made m;

    if promoted < most then
        with pick as materialized (
            select w.ctid from unnest(due_queues, due_from) q(queue, wait_from) cross join lateral (
                select t.ctid from everpoll.tasks t
                where t.line = 1 and t.queue = q.queue and t.due_at >= q.wait_from and t.due_at <= now() and not t.is_leased
                order by t.queue, t.due_at limit most - promoted for update skip locked) w limit most - promoted),
        got as (
            update everpoll.tasks t set line = case when t.limit_key is null then 0 else 3 end
            where t.ctid = any(array(select ctid from pick)) and t.line = 1 and not t.is_leased returning t.rank, t.queue, t.due_at),
        made as (
            select g.queue, count(*) as tasks, max(g.rank) as rank, min(g.due_at) as due_from, max(g.due_at) as due_to
              from got g group by g.queue)
        select promoted + coalesce(sum(m.tasks), 0), max(m.rank), array_agg(m.queue), array_agg(m.due_to),
               array_agg(m.queue), array_agg(m.due_from)
          into promoted, lowest, done_queues, done_until, more_queues, more_from from made m;
        made_queues := made_queues || more_queues;
        made_from := made_from || more_from;
    end if;
    if promoted < most then
        -- No due task waits any more. So begin at now(): entries before it, however many, are of tasks that are gone.
        select min(n.due_at) into next_at from unnest(wanted) q(queue) cross join lateral (
            select t.due_at from everpoll.tasks t
            where t.line = 1 and t.queue = q.queue and t.due_at > now() order by t.queue, t.due_at limit 1) n;
        return;
    end if;
    if lowest > 0 then
        -- The batch was full, and has tasks with a priority below 0. So also promote due tasks of priority 0, which go
        -- before those; the index by rank does not have them.
        with pick as materialized (
            select w.ctid from unnest(due_queues) q(queue) cross join lateral (
                select t.ctid from everpoll.tasks t
                where t.line = 1 and t.queue = q.queue and t.due_at <= now() and t.rank = 0 and not t.is_leased
                order by t.queue, t.due_at limit most for update skip locked) w limit most),
        got as (
            update everpoll.tasks t set line = case when t.limit_key is null then 0 else 3 end
            where t.ctid = any(array(select ctid from pick)) and t.line = 1 and not t.is_leased returning t.queue, t.due_at),
        made as (select g.queue, count(*) as tasks, min(g.due_at) as due_at from got g group by g.queue)
        select coalesce(sum(m.tasks), 0), array_agg(m.queue), array_agg(m.due_at) into more, more_queues, more_from from made m;
        promoted := promoted + more;
        made_queues := made_queues || more_queues;
        made_from := made_from || more_from;
    end if;
    next_at := now();
    is_all := false;
end $$;

-- Returns those of the queues `wanted` that have a task in line 0 (ready, or leased a moment ago), with their rooms.
-- Jumps from name to name in the index.
create function everpoll.ready_queues(wanted text[], its_rooms int[], out queues text[], out rooms int[])
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set jit = off
as $$
    with recursive names(queue) as (
        (select t.queue from everpoll.tasks t where t.line = 0 order by t.queue limit 1)
        union all
        select (select t.queue from everpoll.tasks t where t.line = 0 and t.queue > n.queue order by t.queue limit 1)
          from names n where n.queue is not null)
    select coalesce(array_agg(n.queue), '{}'), coalesce(array_agg(w.room), '{}')
      from names n join unnest(wanted, its_rooms) w(queue, room) on w.queue = n.queue where w.room > 0
$$;

-- Divides a lease of `room` tasks among queues: returns how many of the best `room` ready tasks each queue has, at most
-- in_rooms[i] of in_queues[i]. Takes no locks. The first tasks of all ranges bound the search: a task behind the best
-- `room` of these cannot be among the best `room` tasks.
create function everpoll.shares(room int, in_queues text[], in_rooms int[], range_queues text[], ranks_from int[],
    dues_from timestamptz[], ranks_to bigint[], out queues text[], out rooms int[], out total int)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare last_rank int; last_due timestamptz; heads int; best_queues text[];
begin
    -- Each aggregate has its own order by: for the distinct one the planner may sort the input of all of them.
    select array_agg(distinct h.queue), (array_agg(h.rank order by h.rank desc, h.due_at desc))[1],
           (array_agg(h.due_at order by h.rank desc, h.due_at desc))[1], count(*)
      into best_queues, last_rank, last_due, heads from (
        select r.queue, one.rank, one.due_at
          from unnest(range_queues, ranks_from, dues_from, ranks_to) r(queue, rank_from, due_from, rank_to)
          cross join lateral (
            select ready.rank, ready.due_at, ready.id from everpoll.tasks ready
            where ready.line = 0 and not ready.is_leased and ready.queue = r.queue
              and (ready.rank, ready.due_at) >= (r.rank_from, r.due_from) and ready.rank < r.rank_to
            order by ready.queue, ready.rank, ready.due_at, ready.id limit 1) one
         order by one.rank, one.due_at, one.id limit room) h;
    if heads < room then
        last_rank := 2147483647;
        last_due := 'infinity';
    end if;
    select coalesce(array_agg(s.queue), '{}'), coalesce(array_agg(s.tasks::int), '{}'), coalesce(sum(s.tasks), 0)
      into queues, rooms, total from (
        select b.queue, count(*) as tasks from (
            select f.queue from (
                select r.queue, q.cap, one.rank, one.due_at, one.id,
                       row_number() over (partition by r.queue order by one.rank, one.due_at, one.id) as nth
                  from unnest(range_queues, ranks_from, dues_from, ranks_to) r(queue, rank_from, due_from, rank_to)
                  join unnest(in_queues, in_rooms) q(queue, cap) on q.queue = r.queue
                  cross join lateral (
                    select ready.rank, ready.due_at, ready.id from everpoll.tasks ready
                    where ready.line = 0 and not ready.is_leased and ready.queue = r.queue
                      and (ready.rank, ready.due_at) >= (r.rank_from, r.due_from) and ready.rank < r.rank_to
                      and (ready.rank, ready.due_at) <= (last_rank, last_due)
                    order by ready.queue, ready.rank, ready.due_at, ready.id limit least(q.cap, room)) one
                 where r.queue = any(best_queues)) f
             where f.nth <= f.cap
             order by f.rank, f.due_at, f.id limit room) b
        group by b.queue) s;
end $$;

-- The sweep of marks.py: finds ready tasks with a due time before the caller's mark of their queue and rank. Returns
-- queue, rank and due time of the first one of each. is_late: a waiting task has a due time before waits_from. It reads
-- all dead index entries before the marks, so it may take long; it takes no locks, and no call waits for it.
create function everpoll.behind(wanted text[], waits_from timestamptz[], mark_queues text[], mark_ranks int[],
    mark_dues timestamptz[], out queues text[], out ranks int[], out dues timestamptz[], out is_late boolean,
    out took_s float8)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    select array_agg(b.queue), array_agg(b.rank), array_agg(b.due_at) into queues, ranks, dues from (
        select m.queue, m.rank, one.due_at from unnest(mark_queues, mark_ranks, mark_dues) m(queue, rank, due_at)
        cross join lateral (
            select ready.due_at from everpoll.tasks ready
            where ready.line = 0 and not ready.is_leased and ready.queue = m.queue and ready.rank = m.rank
              and ready.due_at < m.due_at
            order by ready.queue, ready.rank, ready.due_at, ready.id limit 1) one
        where m.queue not in (select p.queue from everpoll.pauses p)) b;
    select exists (
        select from unnest(wanted, waits_from) q(queue, wait_from) cross join lateral (
            select from everpoll.tasks t
            where t.line = 1 and t.queue = q.queue and t.due_at < q.wait_from and not t.is_leased
            order by t.queue, t.due_at limit 1) one
        where q.queue not in (select p.queue from everpoll.pauses p)) into is_late;
    took_s := extract(epoch from clock_timestamp() - statement_timestamp());
end $$;
