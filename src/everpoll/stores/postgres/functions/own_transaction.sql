-- Functions that run in a transaction of the caller: they take and return text, so that every driver can call them.

-- Identifies the database by the start time of its server and its name. All connections to it, by any host name, socket
-- or pooler, get the same value; a copy of the database elsewhere has another.
create function everpoll.place() returns text
language sql stable
return extract(epoch from pg_postmaster_start_time()) || ' ' || current_database();

-- Enqueues a JSON array of tasks; the commit wakes workers. Returns {"ids", "are_new"}; if this is not the expected
-- database, enqueues nothing and returns {"place"}. A key that is taken does not raise: the transaction stays usable.
create function everpoll.enqueue_inside(expected_place text, tasks text, out answer text)
language plpgsql volatile
as $$
declare a record; ids bigint[]; are_new boolean[];
begin
    if everpoll.place() <> expected_place then
        answer := json_build_object('place', everpoll.place());
        return;
    end if;
    select array_agg(n.queue order by n.place) as queues, array_agg(n.name order by n.place) as names,
           array_agg(n.rank order by n.place) as ranks, array_agg(n.args order by n.place) as argss,
           array_agg(n.delay_s order by n.place) as delays_s, array_agg(n.timeout_s order by n.place) as timeouts_s,
           array_agg(n.kind order by n.place) as kinds, array_agg(n.version order by n.place) as versions,
           array_agg(n.memory order by n.place) as memories, array_agg(n.key order by n.place) as keys,
           array_agg(false order by n.place) as nothings, array_agg(n.indexed order by n.place) as are_indexed,
           array_agg(n.limit_key order by n.place) as limit_keys,
           array_agg(n.limit_running order by n.place) as limits_running,
           array_agg(n.limit_starts order by n.place) as limits_starts,
           array_agg(n.limit_per_s order by n.place) as limits_per_s,
           array_agg(n.replaces order by n.place) as replaces, array_agg(n.window_s order by n.place) as windows_s,
           array_agg(n.rejects order by n.place) as rejects, bool_or(n.rejects) as is_together
      into a
      from rows from (json_to_recordset(tasks::json) as (queue text, name text, rank int, args text, delay_s float8,
               timeout_s float8, kind text, version int, memory text, key text, indexed boolean, limit_key text,
               limit_running int, limit_starts int, limit_per_s float8, replaces boolean, window_s float8,
               rejects boolean))
           with ordinality n(queue, name, rank, args, delay_s, timeout_s, kind, version, memory, key, indexed,
               limit_key, limit_running, limit_starts, limit_per_s, replaces, window_s, rejects, place);
    if a.is_together then
        select e.ids, e.are_new into ids, are_new
          from everpoll.enqueue_together(a.queues, a.names, a.ranks, a.argss, a.delays_s, a.timeouts_s, a.kinds,
                   a.versions, a.memories, a.keys, a.nothings, a.nothings, a.are_indexed, a.limit_keys, a.limits_running,
                   a.limits_starts, a.limits_per_s, a.replaces, a.windows_s, null, null, null, a.rejects) e;
    else
        select e.ids, e.are_new into ids, are_new
          from everpoll.enqueue_special(a.queues, a.names, a.ranks, a.argss, a.delays_s, a.timeouts_s, a.kinds,
                   a.versions, a.memories, a.keys, a.nothings, a.nothings, a.are_indexed, a.limit_keys, a.limits_running,
                   a.limits_starts, a.limits_per_s, a.replaces, a.windows_s, null, null, null) e;
    end if;
    perform pg_notify('everpoll', '');
    answer := json_build_object('ids', ids, 'are_new', are_new);
end $$;

-- Ends a task as done, if `me` still holds it: {"me", "id", "sequence", "result"}. A lease that was lost is an error, so
-- that the transaction cannot be committed. Returns {"id"}, or {"place"} as above.
create function everpoll.complete_inside(expected_place text, ended text, out answer text)
language plpgsql volatile
as $$
declare me bigint; task_id bigint; me_label text;
begin
    if everpoll.place() <> expected_place then
        answer := json_build_object('place', everpoll.place());
        return;
    end if;
    me := (ended::json ->> 'me')::bigint;
    task_id := (ended::json ->> 'id')::bigint;
    select w.label into me_label from everpoll.workers w where w.incarnation = me;
    if everpoll.move(me, array[task_id], array[(ended::json ->> 'sequence')::int], array['done'],
           array[ended::json ->> 'result'], array[me_label], array[me_label], null, null, null, null, false) is null then
        raise exception 'task %', task_id using errcode = 'EV003';
    end if;
    answer := json_build_object('id', task_id);
end $$;
