-- How long a start counts for a rate: as `policy/start_window.py` has it.
create function everpoll.window_of(per_s float8) returns interval
language sql immutable
return (per_s + least(per_s * 0.05, 0.05)) * interval '1 second';

-- How many more tasks of a key may start at that instant; if its rate allows none, also when it allows the next one.
-- Running tasks are counted from the leased rows.
create function everpoll.room_of_key(its_key text, its_running int, its_starts int, its_per_s float8, asked_at timestamptz)
returns table (room int, opens_at timestamptz)
language sql stable as $$
    select least(
               case when its_running is null then 1000000 else its_running - (
                   select count(*)::int from (
                       select from everpoll.tasks r where r.line = 4 and r.limit_key = its_key limit its_running) c) end,
               case when its_starts is null then 1000000 else greatest(0, its_starts - w.starts) end),
           case when w.starts >= its_starts then w.first_at + everpoll.window_of(its_per_s) end
      from (select coalesce(sum(s.starts), 0)::int as starts, min(s.at) as first_at from everpoll.starts s
             where its_starts is not null and s.limit_key = its_key
               and s.at > asked_at - everpoll.window_of(its_per_s)) w
    offset 0  -- Otherwise the planner copies this count to each place where the caller reads it: twelve counts a key.
$$;

-- Finds limited tasks that may start now. Locks them and their keys until the transaction ends, so that no other call
-- starts a task of these keys meanwhile. The caller leases the found tasks in this transaction, or not at all.
--
--   rank by rank ──▶ key by key, from the next in turn on ──▶ how many more may run, how many more may start
--
-- A poll for aged tasks first visits all ranks in parallel, one key of each after the other, so that no rank delays the
-- tasks of another; it prefers the keys with the oldest first task. The next such poll continues after these keys
-- (aged_after). Where all due tasks have one priority, no task ages, and keys go on taking turns.
--
-- The function first visits up to `visits` keys without locks; with one rank in one queue it stops once it has enough.
-- Then it locks the keys that seem to have room (advisory locks; it skips keys that another poll has locked). Only then,
-- in a later snapshot, it counts what runs and takes tasks: so the count includes all leases of earlier polls.
--
-- From each key a poll takes up to a sixteenth of the tasks that it wants: so it visits and locks few keys, and polls of
-- several workers seldom want the same keys. A poll of up to 16 tasks takes one from each key.
--   rule_*: the limits of the caller's own code, by name of the task; they replace those that the task was enqueued with.
--   turn_*: by queue, the key that was served last. turns: in which order the keys of these tasks were served. last_*: the
--   key that was visited last, where there were more.
--   range_*: where ready tasks are; of those only as many limited tasks are taken as come before them. aged_*: ready tasks
--   that have waited too long, which come before all others.
--   opens_at: when the first rate that is in the way of a task allows the next start.
--   is_cut: more may be startable; keys were left out, or locked by other polls.
--   has_aged, are_more_aged: some of these have waited too long; more of such may be startable.
create function everpoll.startable(most_tasks int, wanted text[], rooms int[], visits int, turn_queues text[],
    turn_keys text[], rule_names text[], rule_running int[], rule_starts int[], rule_per_s float8[],
    aged_before timestamptz, aged_queues text[], aged_dues timestamptz[], aged_ids bigint[],
    range_queues text[], ranks_from int[], dues_from timestamptz[], ranks_to bigint[], aged_after text,
    out places tid[], out bytes int[], out queues text[], out keys text[], out rates float8[], out turns int[],
    out visited int, out is_cut boolean, out opens_at timestamptz, out last_queue text, out last_key text,
    out has_aged boolean, out are_more_aged boolean, out aged_last text)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    line_queues text[]; line_ranks int[]; open_queues text[]; open_ranks int[]; open_keys text[]; open_running int[];
    open_starts int[]; open_per_s float8[]; its_queue text; its_rank int; turn text; after_key text; until_key text;
    chunk int := 16; seen int; found_keys text[]; found_running int[]; found_starts int[];
    found_per_s float8[]; found_opens timestamptz; found_counts int[]; startable_tasks int := 0;
    quantum int := ceil(most_tasks / 16.0)::int; share int; opened int := 0; is_short boolean; is_one_line boolean;
    is_enough boolean;
    seen_key text; asked_at timestamptz := clock_timestamp(); aged_opened int := 0;
    aged_until timestamptz := 'infinity';
begin
    visited := 0;
    is_cut := false;
    has_aged := false;
    are_more_aged := false;
    if cardinality(wanted) > 16 then
        with recursive names(queue) as (
            (select t.queue from everpoll.tasks t where t.line = 3 order by t.queue limit 1)
            union all
            select (select t.queue from everpoll.tasks t where t.line = 3 and t.queue > n.queue order by t.queue limit 1)
              from names n where n.queue is not null)
        select coalesce(array_agg(w.queue), '{}'), coalesce(array_agg(w.room), '{}') into wanted, rooms
          from unnest(wanted, rooms) w(queue, room) where w.queue in (select n.queue from names n);
    end if;
    with recursive lines(queue, rank, nth) as (
        select q.queue, first.rank, 1 from unnest(wanted, rooms) q(queue, room) cross join lateral (
            select t.rank from everpoll.tasks t where t.line = 3 and t.queue = q.queue
            order by t.queue, t.rank limit 1) first
        where q.room > 0
        union all
        select l.queue, next.rank, l.nth + 1 from lines l cross join lateral (
            select t.rank from everpoll.tasks t where t.line = 3 and t.queue = l.queue and t.rank > l.rank
            order by t.queue, t.rank limit 1) next
        where l.nth < 100)
    select array_agg(l.queue order by l.rank), array_agg(l.rank order by l.rank) into line_queues, line_ranks
      from lines l;
    if line_queues is null or most_tasks <= 0 then return; end if;

    -- With one line the first keys in turn are the best; with several, all of them are compared. At most 64 keys are
    -- locked: a server has room for some thousand advisory locks in all.
    is_one_line := cardinality(line_queues) = 1;
    if aged_before is not null then
        with recursive heads(queue, rank, key, name, running, starts, per_s, due_at) as (
            select l.queue, l.rank, first.* from unnest(line_queues, line_ranks) l(queue, rank) cross join lateral (
                select t.limit_key, t.name, t.limit_running, t.limit_starts, t.limit_per_s, t.due_at
                  from everpoll.tasks t
                 where t.line = 3 and t.queue = l.queue and t.rank = l.rank and t.limit_key > coalesce(aged_after, '')
                 order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit 1) first
            union all
            select h.queue, h.rank, next.* from heads h cross join lateral (
                select t.limit_key, t.name, t.limit_running, t.limit_starts, t.limit_per_s, t.due_at
                  from everpoll.tasks t
                 where t.line = 3 and t.queue = h.queue and t.rank = h.rank and t.limit_key > h.key
                 order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit 1) next),
        -- A limit without an order by ends the recursion early.
        walked as materialized (
            select one.* from (select h.* from heads h limit visits) one),
        oldest as materialized (
            select w.*, row_number() over (order by w.due_at, w.queue, w.rank, w.key) as nth
              from walked w where w.due_at < aged_before order by w.due_at, w.queue, w.rank, w.key),
        roomy as materialized (
            select o.queue, o.rank, o.key, o.nth, case when r.name is null then o.running else r.running end as running,
                   case when r.name is null then o.starts else r.starts end as starts,
                   case when r.name is null then o.per_s else r.per_s end as per_s
              from oldest o left join unnest(rule_names, rule_running, rule_starts, rule_per_s)
                   r(name, running, starts, per_s) on r.name = o.name order by o.nth),
        opened_first as (
            select m.* from roomy m
              cross join lateral everpoll.room_of_key(m.key, m.running, m.starts, m.per_s, asked_at) f
             where f.room > 0 limit least(most_tasks, 64)),
        -- Some ranks have fewer keys than the others.
        goes_on as (
            select max(w.key) as key, count(*) as seen, max(count(*)) over () as most from walked w
             group by w.queue, w.rank)
        select array_agg(o.queue order by o.nth), array_agg(o.rank order by o.nth), array_agg(o.key order by o.nth),
               array_agg(o.running order by o.nth), array_agg(o.starts order by o.nth), array_agg(o.per_s order by o.nth),
               (select count(*) from walked),
               case when (select count(*) from walked) = visits then (
                   select min(g.key) from goes_on g where g.seen >= g.most - 1) end
          into open_queues, open_ranks, open_keys, open_running, open_starts, open_per_s, visited, aged_last
          from opened_first o;
        aged_opened := coalesce(cardinality(open_keys), 0);
        if aged_opened > 0 then
            -- This poll takes no other tasks, and another poll follows.
            is_cut := true;
            aged_until := aged_before;
        end if;
    end if;
    visits := visits + coalesce(visited, 0);
    <<walk>>
    for nth in 1 .. cardinality(line_queues) loop
        exit when aged_opened > 0;
        its_queue := line_queues[nth];
        its_rank := line_ranks[nth];
        turn := coalesce(turn_keys[array_position(turn_queues, its_queue)], '');
        for part in 1 .. case when turn = '' then 1 else 2 end loop
            after_key := case when part = 1 then turn else '' end;
            until_key := case when part = 2 then turn end;
            loop
                with recursive keys(key, name, running, starts, per_s, nth) as (
                    (select t.limit_key, t.name, t.limit_running, t.limit_starts, t.limit_per_s, 1
                       from everpoll.tasks t
                      where t.line = 3 and t.queue = its_queue and t.rank = its_rank and t.limit_key > after_key
                        and (until_key is null or t.limit_key <= until_key)
                      order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit 1)
                    union all
                    select next.*, k.nth + 1 from keys k cross join lateral (
                        select t.limit_key, t.name, t.limit_running, t.limit_starts, t.limit_per_s
                          from everpoll.tasks t
                         where t.line = 3 and t.queue = its_queue and t.rank = its_rank and t.limit_key > k.key
                           and (until_key is null or t.limit_key <= until_key)
                         order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit 1) next
                    where k.nth < chunk),
                ruled as (
                    select k.key, k.nth, case when r.name is null then k.running else r.running end as running,
                           case when r.name is null then k.starts else r.starts end as starts,
                           case when r.name is null then k.per_s else r.per_s end as per_s
                      from keys k left join unnest(rule_names, rule_running, rule_starts, rule_per_s)
                           r(name, running, starts, per_s) on r.name = k.name),
                roomy as (
                    select d.key, d.nth, d.running, d.starts, d.per_s, f.room, f.opens_at,
                           case when f.room > 1 and is_one_line and quantum > 1 then (
                               select count(*)::int from (
                                   select from everpoll.tasks w
                                    where w.line = 3 and w.queue = its_queue and w.rank = its_rank and w.limit_key = d.key
                                    order by w.queue, w.rank, w.limit_key, w.due_at, w.id
                                    limit least(f.room, quantum)) c)
                           else least(f.room, 1) end as tasks
                      from ruled d cross join lateral everpoll.room_of_key(d.key, d.running, d.starts, d.per_s, asked_at) f)
                select array_agg(m.key order by m.nth) filter (where m.room > 0),
                       array_agg(m.running order by m.nth) filter (where m.room > 0),
                       array_agg(m.starts order by m.nth) filter (where m.room > 0),
                       array_agg(m.per_s order by m.nth) filter (where m.room > 0),
                       array_agg(m.tasks order by m.nth) filter (where m.room > 0),
                       min(m.opens_at), count(*), max(m.key)
                  into found_keys, found_running, found_starts, found_per_s, found_counts, found_opens, seen, seen_key
                  from roomy m;
                visited := visited + seen;
                opens_at := least(opens_at, found_opens);
                -- Other polls hold the locks of some keys: the keys after them take their place.
                for place in 1 .. coalesce(cardinality(found_keys), 0) loop
                    is_enough := opened >= 64 or is_one_line and startable_tasks >= most_tasks;
                    exit when is_enough;
                    if pg_try_advisory_xact_lock(hashtextextended(found_keys[place], {lock of keys})) then
                        open_queues := open_queues || its_queue;
                        open_ranks := open_ranks || its_rank;
                        open_keys := open_keys || found_keys[place];
                        open_running := open_running || found_running[place];
                        open_starts := open_starts || found_starts[place];
                        open_per_s := open_per_s || found_per_s[place];
                        opened := opened + 1;
                        startable_tasks := startable_tasks + found_counts[place];
                    else
                        is_cut := true;
                    end if;
                end loop;
                if is_enough or opened >= 64 or visited >= visits or is_one_line and startable_tasks >= most_tasks then
                    is_cut := true;
                    last_queue := its_queue;
                    last_key := seen_key;
                    exit walk;
                end if;
                exit when seen < chunk;
                after_key := seen_key;
                chunk := least(2 * chunk, 64);
            end loop;
        end loop;
    end loop;
    if open_keys is null then return; end if;

    if aged_opened > 0 then
        select array_agg(o.queue order by o.nth), array_agg(o.rank order by o.nth), array_agg(o.key order by o.nth),
               array_agg(o.running order by o.nth), array_agg(o.starts order by o.nth), array_agg(o.per_s order by o.nth)
          into open_queues, open_ranks, open_keys, open_running, open_starts, open_per_s
          from (select u.*, pg_try_advisory_xact_lock(hashtextextended(u.key, {lock of keys})) as is_ours
                  from unnest(open_queues, open_ranks, open_keys, open_running, open_starts, open_per_s) with ordinality
                       u(queue, rank, key, running, starts, per_s, nth)) o
         where o.is_ours;
        if open_keys is null then return; end if;
        opened := cardinality(open_keys);
    end if;

    -- Later than every start that a poll before this one has noted under the same lock.
    asked_at := clock_timestamp();
    -- Locks no more rows than it can lease: an even share from each key. If some keys have fewer, another poll follows.
    share := greatest(quantum, ceil(most_tasks::float8 / opened)::int);
    with locked as materialized (
        select u.*, f.room from unnest(open_queues, open_ranks, open_keys, open_running, open_starts, open_per_s)
            with ordinality u(queue, rank, key, running, starts, per_s, nth)
        cross join lateral everpoll.room_of_key(u.key, u.running, u.starts, u.per_s, asked_at) f),
    pick as materialized (
        select l.queue, l.key, l.nth, l.room, l.starts, l.per_s, t.ctid, t.due_at, t.id, t.bytes, t.place = share as is_end,
               case when t.due_at < aged_before then -2147483648 else l.rank end as rank
          from locked l cross join lateral (
            select one.*, row_number() over () as place from (
                select w.ctid, w.due_at, w.id, octet_length(w.args) + coalesce(octet_length(w.memory), 0) as bytes
                  from everpoll.tasks w
                 where w.line = 3 and w.queue = l.queue and w.rank = l.rank and w.limit_key = l.key
                   and w.due_at < aged_until
                 order by w.queue, w.rank, w.limit_key, w.due_at, w.id
                 limit least(l.room, share) for update skip locked) one) t
         where l.room > 0),
    -- Within a rank, takes one task of each key in turn, and of no key more than its limit allows.
    rounds as (
        select p.*, case when p.rank = -2147483648 then p.due_at end as place,
               row_number() over (partition by p.key order by p.rank, p.due_at, p.id) as nth_of_key,
               row_number() over (partition by p.rank, p.key order by p.due_at, p.id) as round from pick p),
    capped as (
        select t.*, row_number() over (partition by t.queue order by t.rank, t.round, t.place, t.nth) as nth_of_queue
          from rounds t where t.nth_of_key <= t.room),
    chosen as (
        select c.*, c.nth as turn
          from capped c join unnest(wanted, rooms) q(queue, room) on q.queue = c.queue
         where c.nth_of_queue <= q.room order by c.rank, c.round, c.place, c.nth limit most_tasks),
    heads as (
        select a.queue, -2147483648 as rank, a.due_at, a.id from unnest(aged_queues, aged_dues, aged_ids)
            a(queue, due_at, id)
        union all
        select r.queue, one.rank, one.due_at, one.id
          from unnest(range_queues, ranks_from, dues_from, ranks_to) r(queue, rank_from, due_from, rank_to)
          cross join lateral (
            select ready.rank, ready.due_at, ready.id from everpoll.tasks ready
             where ready.line = 0 and not ready.is_leased and ready.queue = r.queue
               and (ready.rank, ready.due_at) >= (r.rank_from, r.due_from) and ready.rank < r.rank_to
             order by ready.queue, ready.rank, ready.due_at, ready.id limit most_tasks) one
         where aged_queues is null),
    compared as (
        select a.*, row_number() over (order by a.rank, a.due_at, a.id) as place,
               row_number() over (partition by a.queue order by a.rank, a.due_at, a.id) as place_in_queue
          from (select c.queue, c.rank, c.due_at, c.id, c.key, c.turn, c.ctid, c.bytes,
                       case when c.starts is not null then c.per_s end as rate from chosen c
                union all
                select h.queue, h.rank, h.due_at, h.id, null, null, null, null, null from heads h) a)
    select array_agg(c.ctid order by c.rank, c.due_at, c.id), array_agg(c.bytes order by c.rank, c.due_at, c.id),
           array_agg(c.queue order by c.rank, c.due_at, c.id), array_agg(c.key order by c.rank, c.due_at, c.id),
           array_agg(c.rate order by c.rank, c.due_at, c.id), array_agg(c.turn::int order by c.rank, c.due_at, c.id),
           (select coalesce(bool_or(p.is_end and p.room > share), false) from pick p),
           coalesce(bool_or(c.rank = -2147483648), false)
      into places, bytes, queues, keys, rates, turns, is_short, has_aged
      from compared c join unnest(wanted, rooms) q(queue, room) on q.queue = c.queue
     where c.key is not null and c.place <= most_tasks and c.place_in_queue <= q.room;
    is_cut := is_cut or is_short;
    are_more_aged := has_aged and (is_short or aged_opened = least(most_tasks, 64));
end $$;

-- The priorities that ready tasks have in these ranges, at most 100 a queue: found by a jump from one to the next in the
-- index, which begins at the mark of each range and not before it. So no poll reads the entries of tasks that have ended.
-- has_several: these tasks, and those that wait for a limit, have more than one priority.
create function everpoll.due_ranks(wanted text[], rooms int[], range_queues text[], ranks_from int[],
    dues_from timestamptz[], ranks_to bigint[], out queues text[], out ranks int[], out dues timestamptz[],
    out has_several boolean)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
    with recursive found(queue, rank, due_from, rank_to, nth) as (
        select r.queue, first.rank, case when first.rank = r.rank_from then r.due_from else '-infinity' end, r.rank_to, 1
          from unnest(range_queues, ranks_from, dues_from, ranks_to) r(queue, rank_from, due_from, rank_to)
          join unnest(wanted, rooms) q(queue, room) on q.queue = r.queue and q.room > 0
         cross join lateral (
            select ready.rank from everpoll.tasks ready
             where ready.line = 0 and ready.queue = r.queue
               and (ready.rank, ready.due_at) >= (r.rank_from, r.due_from) and ready.rank < r.rank_to
             order by ready.queue, ready.rank, ready.due_at, ready.id limit 1) first
        union all
        select f.queue, next.rank, '-infinity', f.rank_to, f.nth + 1 from found f cross join lateral (
            select t.rank from everpoll.tasks t
             where t.line = 0 and t.queue = f.queue and t.rank > f.rank and t.rank < f.rank_to
             order by t.queue, t.rank limit 1) next
        where f.nth < 100),
    numbered as (select f.*, row_number() over (partition by f.queue order by f.rank) as place from found f),
    limited as (
        select one.rank from unnest(wanted, rooms) q(queue, room) cross join lateral (
            (select t.rank from everpoll.tasks t where t.line = 3 and t.queue = q.queue order by t.queue, t.rank limit 1)
            union all
            (select t.rank from everpoll.tasks t where t.line = 3 and t.queue = q.queue
              order by t.queue desc, t.rank desc limit 1)) one
         where q.room > 0)
    select array_agg(n.queue), array_agg(n.rank), array_agg(n.due_from),
           (select count(distinct one.rank) > 1 from (
               select n.rank from numbered n union all select l.rank from limited l) one)
      from numbered n where n.place <= 100
$$;

-- Ready tasks that have been due since before that instant, oldest first, locked: those of the ranks that `due_ranks`
-- has found, from the due times on that it gives.
create function everpoll.aged(most_tasks int, wanted text[], rooms int[], aged_before timestamptz,
    line_queues text[], line_ranks int[], line_dues timestamptz[],
    out places tid[], out bytes int[], out queues text[], out dues timestamptz[], out ids bigint[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    if line_queues is null then return; end if;
    with pick as materialized (
        select l.queue, t.ctid, t.due_at, t.id, t.bytes, q.room as cap
          from unnest(line_queues, line_ranks, line_dues) l(queue, rank, due_from)
          join unnest(wanted, rooms) q(queue, room) on q.queue = l.queue
          cross join lateral (
            select ready.ctid, ready.due_at, ready.id,
                   octet_length(ready.args) + coalesce(octet_length(ready.memory), 0) as bytes
              from everpoll.tasks ready
             where ready.line = 0 and not ready.is_leased and ready.queue = l.queue and ready.rank = l.rank
               and ready.due_at >= l.due_from and ready.due_at < aged_before
             order by ready.queue, ready.rank, ready.due_at, ready.id limit least(q.room, most_tasks)
             for update skip locked) t),
    capped as (
        select p.*, row_number() over (partition by p.queue order by p.due_at, p.id) as nth from pick p),
    best as (
        select c.* from capped c where c.nth <= c.cap order by c.due_at, c.id limit most_tasks)
    select array_agg(b.ctid order by b.due_at, b.id), array_agg(b.bytes order by b.due_at, b.id),
           array_agg(b.queue order by b.due_at, b.id), array_agg(b.due_at order by b.due_at, b.id),
           array_agg(b.id order by b.due_at, b.id)
      into places, bytes, queues, dues, ids from best b;
end $$;

-- Notes that tasks of these keys have started just now: one entry for each task; rates: of how many seconds, null where
-- no rate counts. The caller holds the locks of the keys.
create function everpoll.note_starts(keys text[], rates float8[]) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_hashjoin = off set jit = off
as $$
declare started_at timestamptz := clock_timestamp();
begin
    delete from everpoll.starts s using (
        select distinct k.key, k.rate from unnest(keys, rates) k(key, rate) where k.rate is not null) k
    where s.limit_key = k.key and s.at <= started_at - everpoll.window_of(k.rate);
    insert into everpoll.starts (limit_key, began_at, at, until_at, starts)
    select k.key, coalesce(span.began_at, started_at), started_at, started_at + everpoll.window_of(k.rate),
           coalesce(span.starts, 0) + k.tasks
      from (select k.key, k.rate, count(*)::int as tasks from unnest(keys, rates) k(key, rate)
             where k.rate is not null group by k.key, k.rate) k
      left join lateral (
        select s.began_at, s.starts from everpoll.starts s
         where s.limit_key = k.key and s.began_at > started_at - k.rate / 64 * interval '1 second'
         order by s.limit_key desc, s.began_at desc limit 1) span on true
    on conflict (limit_key, began_at) do update
    set at = excluded.at, until_at = excluded.until_at, starts = excluded.starts;
end $$;

-- How many due tasks wait at one key, up to `most`, and how many run.
create function everpoll.at_key(its_key text, most int, out waiting bigint, out running bigint,
    out oldest_started_at timestamptz)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    select count(*), min(t.started_at) into running, oldest_started_at
      from everpoll.tasks t where t.line = 4 and t.limit_key = its_key;
    with recursive lines(queue, rank) as (
        (select t.queue, t.rank from everpoll.tasks t where t.line = 3 order by t.queue, t.rank limit 1)
        union all
        select next.queue, next.rank from lines l cross join lateral (
            select t.queue, t.rank from everpoll.tasks t where t.line = 3 and (t.queue, t.rank) > (l.queue, l.rank)
            order by t.queue, t.rank limit 1) next)
    select least(count(*), most) into waiting from lines l cross join lateral (
        select from everpoll.tasks t
         where t.line = 3 and t.queue = l.queue and t.rank = l.rank and t.limit_key = its_key limit most) one;
end $$;

-- How many of these payloads one poll returns: always the first one, then the next ones until most_bytes is reached.
create function everpoll.fitting(bytes int[], most_bytes bigint, out fits int)
language sql immutable as $$
    select count(*)::int from (
        select b.nth, sum(b.bytes) over (order by b.nth) as total from unnest(bytes) with ordinality b(bytes, nth)) one
     where one.total <= most_bytes or one.nth = 1
$$;
