-- Leases up to `room` due tasks, at most rooms[i] of the queue wanted[i], highest priority first, then oldest first,
-- over all queues together. Several queues lock up to their room each for the length of the statement, one locks no
-- row too many.
--
-- Ranges say where to look: of range_queues[j], from (ranks_from[j], dues_from[j]) up to below ranks_to[j]. One range
-- per queue from the smallest rank on is a full look (is_full); more of them step over what the caller knows to be gone
-- (marks.py). `mark_*` say how far this call came.
--
-- In a full look waiting tasks whose time has come are made ready first, so that they take their place in the order of
-- this very call: at most 5,000 per queue, about 50 ms. Only a full look tells when the next one falls due. The others
-- do without the question, which costs as much as leasing twenty rows; full ones follow soon enough.
--
-- The worker's own row is locked against being declared dead: a dead worker leases nothing any more (is_lost), and
-- a lease under way is never missed by the rescue. The advisory lock makes one worker's leases follow one another, so
-- that `recover` waits for one whose caller has gone away.
--
-- The planner's settings are the function's own: they outlive no call, so a pooler cannot leak them, and no
-- statistics, however stale, can turn the walk of tasks_ready into a scan and a sort (measured: up to 2,300 us a row).
-- Everything comes back in one row of arrays: one set for all, another for the odd ones that have a key, a memory or a
-- past. Of the others the attempt is the sequence.
create function everpoll.lease(me bigint, room int, wanted text[], rooms int[],
    range_queues text[], ranks_from int[], dues_from timestamptz[], ranks_to bigint[], is_full boolean,
    out is_lost boolean, out ids bigint[], out sequences int[], out names text[], out args text[],
    out in_queues text[], out odd_ids bigint[], out attempts int[], out memories text[], out keys text[], out rescues smallint[],
    out versions smallint[], out canceled boolean[], out mark_queues text[], out mark_ranks int[],
    out mark_dues timestamptz[], out promoted int, out next_due_s float8, out took_s float8, out at float8)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare next_at timestamptz;
begin
    perform pg_advisory_xact_lock(me);
    perform from everpoll.workers w where w.incarnation = me and w.stopped_at is null for key share;
    is_lost := not found;
    if is_lost then return; end if;

    promoted := 0;
    if is_full then
        select min(n.due_at) into next_at from unnest(wanted) q(queue) cross join lateral (
            select t.due_at from everpoll.tasks t where t.line = 1 and t.queue = q.queue
            order by t.queue, t.due_at limit 1) n;
    end if;
    if next_at <= now() then
        with pick as materialized (
            select w.ctid from unnest(wanted) q(queue) cross join lateral (
                select t.ctid from everpoll.tasks t
                where t.line = 1 and t.queue = q.queue and t.due_at <= now()
                order by t.queue, t.due_at limit 5000 for update skip locked) w),
        got as (
            update everpoll.tasks t set line = 0
            where t.ctid = any(array(select ctid from pick)) and t.line = 1 returning t.id)
        select count(*) into promoted from got;
        select min(n.due_at) into next_at from unnest(wanted) q(queue) cross join lateral (
            select t.due_at from everpoll.tasks t where t.line = 1 and t.queue = q.queue
            order by t.queue, t.due_at limit 1) n;
    end if;

    with pick as materialized (
        select c.ctid from unnest(wanted, rooms) q(queue, cap)
        cross join lateral (
            select t.* from unnest(range_queues, ranks_from, dues_from, ranks_to) r(queue, rank_from, due_from, rank_to)
            cross join lateral (
                select ready.ctid, ready.rank, ready.due_at, ready.id from everpoll.tasks ready
                where ready.line = 0 and not ready.is_leased and ready.queue = r.queue
                  and (ready.rank, ready.due_at) >= (r.rank_from, r.due_from) and ready.rank < r.rank_to
                order by ready.queue, ready.rank, ready.due_at, ready.id limit q.cap for update skip locked) t
            where r.queue = q.queue limit q.cap) c
        order by c.rank, c.due_at, c.id limit room),
    got as (
        update everpoll.tasks t
        -- Not now(): the row may have been enqueued since this transaction began, and nothing starts before it is there.
        set owner = me, is_leased = true, sequence = t.sequence + 1, attempt = t.attempt + 1, started_at = clock_timestamp()
        where t.ctid = any(array(select ctid from pick)) and not t.is_leased
        returning t.id, t.sequence, t.attempt, t.name, t.args, t.queue, t.memory, t.key, t.rescues, t.version,
                  t.cancel_requested, t.rank, t.due_at),
    marks as (
        select g.queue, g.rank, max(g.due_at) as due_at
          from got g group by g.queue, g.rank),
    -- A Tid Scan finds rows in the order of the pages. Only what all need is sorted: wide rows cost.
    most as (
        select array_agg(g.id) as ids, array_agg(g.sequence) as sequences,
               array_agg(g.name) as names, array_agg(g.args) as args,
               array_agg(g.queue) filter (where cardinality(wanted) > 1) as queues
          from (select g.id, g.sequence, g.name, g.args, g.queue from got g order by g.rank, g.due_at, g.id) g),
    odd as (
        select array_agg(g.id) as ids, array_agg(g.attempt) as attempts, array_agg(g.memory) as memories,
               array_agg(g.key) as keys,
               array_agg(g.rescues) as rescues, array_agg(g.version) as versions,
               array_agg(g.cancel_requested) as canceled
          from got g
         where g.attempt <> g.sequence or g.memory is not null or g.key is not null or g.rescues > 0 or g.version <> 1
            or g.cancel_requested),
    reach as (
        select array_agg(m.queue) as queues, array_agg(m.rank) as ranks, array_agg(m.due_at) as dues from marks m)
    select m.ids, m.sequences, m.names, m.args, m.queues,
           o.ids, o.attempts, o.memories, o.keys, o.rescues, o.versions, o.canceled, r.queues, r.ranks, r.dues
      into ids, sequences, names, args, in_queues,
           odd_ids, attempts, memories, keys, rescues, versions, canceled, mark_queues, mark_ranks, mark_dues
      from most m cross join odd o cross join reach r;

    if coalesce(cardinality(ids), 0) < room then
        next_due_s := extract(epoch from next_at - clock_timestamp());
    end if;
    took_s := extract(epoch from clock_timestamp() - now());
    at := extract(epoch from clock_timestamp());
end $$;
