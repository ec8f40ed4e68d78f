-- Leases up to `room` tasks of one queue in the middle of a run of full batches. A shorter `lease`: it has one queue, and
-- no waiting tasks, limits or aged tasks (measured: 50 tasks take the server 380 us instead of 490).
--
-- It promises what `lease` does: the same order, locks and fences. If it cannot keep that (is_left: a queue is paused, or
-- the payloads are too many bytes), it leases nothing, and the caller calls `lease`.
create function everpoll.lease_run(me bigint, room int, wanted text, most_bytes bigint,
    ranks_from int[], dues_from timestamptz[], ranks_to bigint[], is_settling boolean,
    out is_lost boolean, out is_left boolean, out ids bigint[], out sequences int[], out names text[], out args text[],
    out waited_us float8[], out detailed_ids bigint[], out attempts int[], out memories text[], out keys text[],
    out rescues smallint[], out versions smallint[], out canceled boolean[], out limit_keys text[],
    out mark_ranks int[], out mark_dues timestamptz[], out took_s float8, out at float8)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    perform pg_advisory_xact_lock(me);
    select exists (select from everpoll.pauses) into is_left
      from everpoll.workers w where w.incarnation = me and w.stopped_at is null for key share of w;
    is_lost := not found;
    if is_lost or is_left then return; end if;
    if is_settling then perform set_config('synchronous_commit', 'off', true); end if;

    with found as materialized (
        select array_agg(p.ctid) as ctids, coalesce(sum(p.bytes), 0) > most_bytes as are_too_many from (
            select t.ctid, t.bytes from unnest(ranks_from, dues_from, ranks_to) r(rank_from, due_from, rank_to)
            cross join lateral (
                select ready.ctid, octet_length(ready.args) + coalesce(octet_length(ready.memory), 0) as bytes
                from everpoll.tasks ready
                where ready.line = 0 and not ready.is_leased and ready.queue = wanted
                  and (ready.rank, ready.due_at) >= (r.rank_from, r.due_from) and ready.rank < r.rank_to
                order by ready.queue, ready.rank, ready.due_at, ready.id limit room for update skip locked) t
            limit room) p),
    got as (
        update everpoll.tasks t
        set owner = me, is_leased = true, sequence = t.sequence + 1, attempt = t.attempt + 1, started_at = clock_timestamp()
        where t.ctid = any((select f.ctids from found f where not f.are_too_many)::tid[]) and not t.is_leased
        returning t.id, t.sequence, t.attempt, t.name, t.args, t.memory, t.key, t.rescues, t.version,
                  t.cancel_requested, t.limit_key, t.rank, t.due_at),
    marks as (select g.rank, max(g.due_at) as due_at, min(g.due_at) as first_due_at from got g group by g.rank),
    reach as (
        select array_agg(m.rank) as ranks, array_agg(m.due_at) as dues, min(m.first_due_at) as first_at,
               max(m.due_at) as last_at,
               {differ} as differ from marks m),
    most as (
        select array_agg(g.id) as ids, array_agg(g.sequence) as sequences,
               array_agg(g.name) as names, array_agg(g.args) as args,
               array_agg(date_part('epoch', now() - g.due_at) * 1e6::float8)
                   filter (where (select r.differ from reach r)) as waited_us
          from (select g.id, g.sequence, g.name, g.args, g.due_at from got g order by g.rank, g.due_at, g.id) g),
    detailed as (
        select {details} from got g where {has details})
    select m.ids, m.sequences, m.names, m.args, {waited},
           d.ids, d.attempts, d.memories, d.keys, d.rescues, d.versions, d.canceled, d.limit_keys, r.ranks, r.dues,
           (select f.are_too_many from found f)
      into ids, sequences, names, args, waited_us, detailed_ids, attempts, memories, keys, rescues, versions, canceled,
           limit_keys, mark_ranks, mark_dues, is_left
      from most m cross join detailed d cross join reach r;

    took_s := extract(epoch from clock_timestamp() - now());
    at := extract(epoch from clock_timestamp());
end $$;
