-- The feed is read by id, and transactions commit in any order: an event may become visible behind others with higher
-- ids. So whoever appends says, from before it takes its first id until after its commit, above which id it may have
-- some, by a shared lock on a number that carries that id. Nobody ever waits for these locks; they are only looked at.
-- Numbers from this one on, 40 bits of them, are the feed's.
create function everpoll.feed_lock() returns bigint language sql immutable return 4543056::bigint << 40;

create function everpoll.last_event(out id bigint) language sql volatile
begin atomic
    select case when s.is_called then s.last_value else 0 end from everpoll.events_id_seq s;
end;

-- Up to which id everything that ever will be is visible to the next statement: first what was given out, then who is
-- still at it. Whoever is not seen here has ended, or will get higher ids.
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

-- Two statements, so two snapshots (READ COMMITTED): the second sees whatever had ended for the first.
create function everpoll.feed(after bigint, most int) returns setof everpoll.events
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare last bigint := everpoll.feed_end();
begin
    return query select e.* from everpoll.events e where e.id > after and e.id <= last order by e.id limit most;
end $$;

-- The position of now is that of an event, or the beginning: an id that was only given out may be given out again after
-- a crash of the server.
create function everpoll.feed_now(out last_id bigint)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare last bigint := everpoll.feed_end();
begin
    select coalesce(max(e.id), 0) into last_id from everpoll.events e where e.id <= last;
end $$;

-- Appends what happened to which task, in the transaction in which it did, but for the tasks that were lost. They are
-- live, or have ended just now. What is there already stays.
create function everpoll.append_events(task_ids bigint[], seqs bigint[], bodies text[], lost bigint[]) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    perform pg_advisory_xact_lock_shared(everpoll.feed_lock() + everpoll.last_event());
    insert into everpoll.events (task_id, seq, name, key, body)
    select u.task_id, u.seq, t.name, t.key, u.body
      from unnest(task_ids, seqs, bodies) with ordinality u(task_id, seq, body, place)
      join (select live.id, live.name, live.key from everpoll.tasks live where live.id = any(task_ids)
            union all
            select h.id, h.name, h.key from everpoll.history h where h.id = any(task_ids) and h.ended_at = now()) t
        on t.id = u.task_id
     where lost is null or u.task_id <> all(lost)
     order by u.place
    on conflict (task_id, seq) do nothing;
end $$;
