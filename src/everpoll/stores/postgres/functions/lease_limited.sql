-- Leases up to `room` tasks of one queue that count for limits, after a poll that found only such tasks: a `lease` that
-- does nothing else. Measured with 100 keys and four processes: 56 us of the server a task, in place of 98.
--
-- Its promises are those of `lease` and `startable` (limited.sql): same order; keys take turns; each key is locked before
-- its running tasks are counted, in a later snapshot, so that the count includes all leases of earlier polls; of no key
-- more tasks start than its limit allows. The commit waits for the disk. Where it cannot keep them, it leases nothing and
-- the caller calls `lease` (is_left): a queue is paused, another task is due that is ready or waits, tasks of several
-- priorities wait for their limits, a key has a rate, or the payloads are too many bytes.
--
-- It takes for granted that most keys have room, and as many tasks as may start: so it counts once, what runs at the keys
-- that it has locked. Where that is not so it finds fewer tasks, and the caller goes back to `lease`, which counts first.
--
-- The ranges and wait_from say where other tasks may be (marks.py). visited: at how many keys it looked; served_key: the
-- last one in turn that it locked; of_keys: the key of each task.
create function everpoll.lease_limited(me bigint, room int, wanted text, most_bytes bigint,
    ranks_from int[], dues_from timestamptz[], ranks_to bigint[], wait_from timestamptz, turn text,
    rule_names text[], rule_running int[], rule_starts int[],
    out is_lost boolean, out is_left boolean, out ids bigint[], out sequences int[], out names text[], out args text[],
    out waited_us float8[], out detailed_ids bigint[], out attempts int[], out memories text[], out keys text[],
    out rescues smallint[], out versions smallint[], out canceled boolean[], out limit_keys text[],
    out of_keys text[], out visited int, out served_key text, out took_s float8, out at float8)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    -- Of one key at most a sixteenth, as in `startable`; some keys more than that needs, for those that have little room.
    quantum int := ceil(room / 16.0)::int; needed int := least(64, ceil(1.3 * room / quantum)::int);
    chunk int := needed + 8; its_rank int; last_rank int; after_key text := coalesce(turn, ''); until_key text;
    found_keys text[]; found_running int[]; has_rate boolean; seen int; last_key text;
    open_keys text[]; open_running int[]; opened int := 0; share int;
begin
    perform pg_advisory_xact_lock(me);
    select exists (select from everpoll.pauses) into is_left
      from everpoll.workers w where w.incarnation = me and w.stopped_at is null for key share of w;
    is_lost := not found;
    if is_lost or is_left then return; end if;
    select first.rank, last.rank into its_rank, last_rank from
        (select t.rank from everpoll.tasks t where t.line = 3 and t.queue = wanted
          order by t.queue, t.rank limit 1) first,
        (select t.rank from everpoll.tasks t where t.line = 3 and t.queue = wanted
          order by t.queue desc, t.rank desc limit 1) last;
    is_left := its_rank is distinct from last_rank or its_rank is null
        or exists (
            select from unnest(ranks_from, dues_from, ranks_to) r(rank_from, due_from, rank_to) cross join lateral (
                select from everpoll.tasks ready
                 where ready.line = 0 and not ready.is_leased and ready.queue = wanted
                   and (ready.rank, ready.due_at) >= (r.rank_from, r.due_from) and ready.rank < r.rank_to
                 order by ready.queue, ready.rank, ready.due_at, ready.id limit 1) one)
        or exists (
            select from everpoll.tasks t
             where t.line = 1 and not t.is_leased and t.queue = wanted and t.due_at >= wait_from and t.due_at <= now()
             order by t.queue, t.due_at limit 1);
    if is_left then return; end if;

    visited := 0;
    <<walk>>
    loop
        with recursive heads(key, name, running, starts, nth) as (
            (select t.limit_key, t.name, t.limit_running, t.limit_starts, 1 from everpoll.tasks t
              where t.line = 3 and t.queue = wanted and t.rank = its_rank and t.limit_key > after_key
                and (until_key is null or t.limit_key <= until_key)
              order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit 1)
            union all
            select next.*, h.nth + 1 from heads h cross join lateral (
                select t.limit_key, t.name, t.limit_running, t.limit_starts from everpoll.tasks t
                 where t.line = 3 and t.queue = wanted and t.rank = its_rank and t.limit_key > h.key
                   and (until_key is null or t.limit_key <= until_key)
                 order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit 1) next
            where h.nth < chunk),
        ruled as (
            select h.key, h.nth, case when r.name is null then h.running else r.running end as running,
                   case when r.name is null then h.starts else r.starts end as starts
              from heads h left join unnest(rule_names, rule_running, rule_starts) r(name, running, starts)
                on r.name = h.name)
        select array_agg(d.key order by d.nth), array_agg(d.running order by d.nth),
               coalesce(bool_or(d.starts is not null or d.running is null), false), count(*), max(d.key)
          into found_keys, found_running, has_rate, seen, last_key
          from ruled d;
        is_left := has_rate;
        if is_left then return; end if;
        visited := visited + seen;
        for place in 1 .. coalesce(cardinality(found_keys), 0) loop
            if pg_try_advisory_xact_lock(hashtextextended(found_keys[place], {lock of keys})) then
                open_keys := open_keys || found_keys[place];
                open_running := open_running || found_running[place];
                opened := opened + 1;
                exit walk when opened >= needed;
            end if;
        end loop;
        exit when visited >= {visits};
        if seen = chunk then
            after_key := last_key;
        else
            exit when until_key is not null or coalesce(turn, '') = '';
            after_key := '';
            until_key := turn;
        end if;
    end loop;
    if opened > 0 then
        share := greatest(quantum, ceil(room::float8 / opened)::int);
        with locked as materialized (
            select u.key, u.nth, u.running - (
                select count(*)::int from (
                    select from everpoll.tasks r where r.line = 4 and r.limit_key = u.key limit u.running) c) as room
              from unnest(open_keys, open_running) with ordinality u(key, running, nth)),
        pick as materialized (
            select t.ctid, t.bytes, t.place, l.nth, l.key from locked l cross join lateral (
                select one.*, row_number() over () as place from (
                    select w.ctid, octet_length(w.args) + coalesce(octet_length(w.memory), 0) as bytes
                      from everpoll.tasks w
                     where w.line = 3 and w.queue = wanted and w.rank = its_rank and w.limit_key = l.key
                     order by w.queue, w.rank, w.limit_key, w.due_at, w.id
                     limit least(l.room, share) for update skip locked) one) t
             where l.room > 0),
        found as materialized (
            select array_agg(c.ctid) as ctids, coalesce(sum(c.bytes), 0) > most_bytes as are_too_many,
                   (array_agg(c.key order by c.nth desc))[1] as last_key
              from (select p.* from pick p order by p.place, p.nth limit room) c),
        got as (
            update everpoll.tasks t
            set owner = me, is_leased = true, sequence = t.sequence + 1, attempt = t.attempt + 1,
                started_at = clock_timestamp(), line = 4
            where t.ctid = any((select f.ctids from found f where not f.are_too_many)::tid[]) and not t.is_leased
            returning t.id, t.sequence, t.attempt, t.name, t.args, t.memory, t.key, t.rescues, t.version,
                      t.cancel_requested, t.limit_key, t.due_at),
        reach as (
            select min(m.first_due_at) as first_at, max(m.due_at) as last_at, {differ} as differ
              from (select g.due_at, g.due_at as first_due_at from got g) m),
        most as (
            select array_agg(g.id) as ids, array_agg(g.sequence) as sequences,
                   array_agg(g.name) as names, array_agg(g.args) as args, array_agg(g.limit_key) as of_keys,
                   array_agg(date_part('epoch', now() - g.due_at) * 1e6::float8)
                       filter (where (select r.differ from reach r)) as waited_us
              from (select g.id, g.sequence, g.name, g.args, g.limit_key, g.due_at from got g order by g.due_at, g.id) g),
        detailed as (
            select {details} from got g where {has details})
        select m.ids, m.sequences, m.names, m.args, m.of_keys, {waited},
               d.ids, d.attempts, d.memories, d.keys, d.rescues, d.versions, d.canceled, d.limit_keys,
               f.are_too_many, f.last_key
          into ids, sequences, names, args, of_keys, waited_us, detailed_ids, attempts, memories, keys, rescues, versions,
               canceled, limit_keys, is_left, served_key
          from most m cross join detailed d cross join reach r cross join found f;
    end if;
    took_s := extract(epoch from clock_timestamp() - now());
    at := extract(epoch from clock_timestamp());
end $$;
