-- The feed is read by id, and transactions commit in any order: an event may become visible after others with higher
-- ids. So a transaction that appends announces, from before it takes its first id until after its commit, above which
-- id it may have some, by a shared lock on a number that carries that id. No transaction waits for these locks.
-- Numbers from this one on, 40 bits of them, are the feed's.
create function everpoll.feed_lock() returns bigint language sql immutable return 4543056::bigint << 40;

create function everpoll.last_event(out id bigint) language sql volatile
begin atomic
    select case when s.is_called then s.last_value else 0 end from everpoll.events_id_seq s;
end;

-- Takes that lock, once in a transaction: the first one covers whatever is appended later. A transaction that cancels
-- thousands of tasks would need as many locks otherwise, and the server has room for a few thousand in all.
create function everpoll.announce_append() returns void
language plpgsql volatile as $$
begin
    if current_setting('everpoll.has_announced', true) is distinct from 'yes' then
        perform pg_advisory_xact_lock_shared(everpoll.feed_lock() + everpoll.last_event());
        perform set_config('everpoll.has_announced', 'yes', true);
    end if;
end $$;

-- Returns the id up to which the next statement sees every event; no event with a lower id can appear later. Reads the
-- last id first, then the transactions that still append: any other transaction has ended, or will get higher ids.
create function everpoll.feed_end(out id bigint)
language plpgsql volatile
as $$
declare under_way bigint;
begin
    id := everpoll.last_event();
    select min(l.number - everpoll.feed_lock()) into under_way from (
        select (k.classid::bigint << 32) | k.objid::bigint as number from pg_locks k
        where k.locktype = 'advisory' and k.objsubid = 1
          and k.database = (select d.oid from pg_database d where d.datname = current_database())) l
    where l.number >> 40 = everpoll.feed_lock() >> 40;
    id := least(id, under_way);
end $$;

-- Two statements, so two snapshots (READ COMMITTED): the second sees whatever had ended for the first. One row at least:
-- without an event its columns are null. is_gap: events after `after` were dropped because of their age; read in the
-- snapshot that the events are read in.
create function everpoll.feed(after bigint, most int) returns table (is_gap boolean, task_id bigint, kind text,
    name text, key text, seq bigint, at timestamptz, body text, id bigint)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare last bigint := everpoll.feed_end();
begin
    return query
    select h.pruned > after, e.task_id, e.kind, e.name, e.key, e.seq, e.at, e.body, e.id
      from (select coalesce(max(f.pruned), 0) as pruned from everpoll.feed_horizon f) h
      left join lateral (
        select one.* from everpoll.events one where one.id > after and one.id <= last order by one.id limit most) e on true
     order by e.id;
end $$;

-- The current position is that of the last event, also after it was dropped, or the beginning. It is never an id without
-- an event: after a crash of the server, Postgres may assign such an id again.
create function everpoll.feed_now(out last_id bigint)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare last bigint := everpoll.feed_end();
begin
    select greatest((select max(e.id) from everpoll.events e where e.id <= last),
                    (select max(f.pruned) from everpoll.feed_horizon f), 0) into last_id;
end $$;

-- Appends events of tasks that are live or have just ended, in the transaction that changes the tasks; leaves out those
-- of lost tasks, and those that are there already. A negative number is not the task's own: it becomes minus the
-- event's id, which no other event has.
create function everpoll.append_events(task_ids bigint[], seqs bigint[], bodies text[], lost bigint[]) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    perform everpoll.announce_append();
    insert into everpoll.events (id, task_id, seq, kind, name, key, body)
    select n.id, n.task_id, case when n.seq < 0 then -n.id else n.seq end, n.kind, n.name, n.key, n.body from (
        select nextval('everpoll.events_id_seq') as id, o.* from (
            select u.task_id, u.seq, t.kind, t.name, t.key, u.body
              from unnest(task_ids, seqs, bodies) with ordinality u(task_id, seq, body, place)
              join (select live.id, live.kind, live.name, live.key from everpoll.tasks live where live.id = any(task_ids)
                    union all
                    select h.id, h.kind, h.name, h.key from everpoll.history h
                     where h.id = any(task_ids) and h.ended_at = now()) t
                on t.id = u.task_id
             where lost is null or u.task_id <> all(lost)
             order by u.place) o) n
    on conflict (task_id, seq) do nothing;
end $$;

-- Appends events about tasks, queues or anything else, each under minus its own id.
create function everpoll.log_events(task_ids bigint[], kinds text[], names text[], keys text[], bodies text[])
returns void
language plpgsql volatile as $$
begin
    perform everpoll.announce_append();
    insert into everpoll.events (id, task_id, seq, kind, name, key, body)
    select n.id, n.task_id, -n.id, n.kind, n.name, n.key, n.body from (
        select nextval('everpoll.events_id_seq') as id, o.* from (
            select u.task_id, u.kind, u.name, u.key, u.body
              from unnest(task_ids, kinds, names, keys, bodies) with ordinality u(task_id, kind, name, key, body, place)
             order by u.place) o) n;
end $$;
