-- Enqueues a batch in which some tasks have a key. If a live task has the key already, returns that task's id instead.
-- All or none. Assigns ids and due times in the order of the call, but takes the keys in their own order, so that two
-- batches cannot deadlock. If a task that had a key ends between the insert and the select that looks for it, the
-- function undoes everything and starts again at the first key.
create function everpoll.enqueue_keyed(queues text[], names text[], ranks int[], argss text[], delays_s float8[],
    timeouts_s float8[], kinds text[], versions int[], memories text[], keys text[],
    out ids bigint[], out are_new boolean[])
language plpgsql volatile
set enable_seqscan = off set enable_mergejoin = off set jit = off
as $$
declare new_ids bigint[]; new_dues timestamptz[]; put bigint[]; known bigint[];
begin
    select array_agg(n.id order by n.place), array_agg(n.due_at order by n.place) into new_ids, new_dues from (
        select u.place, nextval('everpoll.tasks_id_seq') as id,
               clock_timestamp() + u.delay_s * interval '1 second' as due_at
          from unnest(delays_s) with ordinality u(delay_s, place)) n;
    loop
        begin
            with fresh as (
                insert into everpoll.tasks (id, due_at, line, queue, name, rank, args, timeout_s, kind, version, memory,
                    key)
                select u.id, u.due_at, case when u.delay_s <= 0 then 0 else 1 end, u.queue, u.name, u.rank, u.args,
                       u.timeout_s, u.kind, u.version, u.memory, u.key
                  from unnest(new_ids, new_dues, delays_s, queues, names, ranks, argss, timeouts_s, kinds, versions,
                              memories, keys)
                       u(id, due_at, delay_s, queue, name, rank, args, timeout_s, kind, version, memory, key)
                 order by u.key collate "C", u.kind collate "C", u.id
                on conflict (key, kind) where key is not null do nothing returning tasks.id)
            select array_agg(r.id) into put from fresh r;
            if cardinality(put) = cardinality(new_ids) then
                ids := new_ids;
                are_new := array_fill(true, array[cardinality(new_ids)]);
                return;
            end if;
            -- Of equal keys in one call, the first has the smallest id.
            select array_agg(case when f.id is null then t.id else u.id end order by u.place),
                   array_agg(f.id is not null order by u.place)
              into known, are_new
              from unnest(new_ids, keys, kinds) with ordinality u(id, key, kind, place)
              left join unnest(put) f(id) on f.id = u.id
              left join everpoll.tasks t on t.key = u.key and t.kind = u.kind;
            if array_position(known, null) is null then
                ids := known;
                return;
            end if;
            raise exception 'a task ended meanwhile' using errcode = 'EV001';
        exception when sqlstate 'EV001' then null;
        end;
    end loop;
end $$;

-- Enqueues a batch in which some tasks begin once, have events, are indexed, cancel themselves or have options for
-- their keys. Inserts row by row; batches without such tasks take faster functions. As in enqueue_keyed, assigns ids
-- and due times in the order of the call, and takes keys in their own order.
--   onces: after a row with the key is inserted, no other transaction can take the key, and the next statement sees in
--   history any task that had it before. So the check after the insert is never too early; the check before it only
--   saves the insert.
--   replaces, windows_s: see unique.sql; null: no task has such options.
create function everpoll.enqueue_special(queues text[], names text[], ranks int[], argss text[], delays_s float8[],
    timeouts_s float8[], kinds text[], versions int[], memories text[], keys text[], onces boolean[],
    cancel_themselves boolean[], are_indexed boolean[],
    limit_keys text[], limits_running int[], limits_starts int[], limits_per_s float8[],
    replaces boolean[], windows_s float8[], event_places int[], event_seqs bigint[], event_bodies text[], out ids bigint[], out are_new boolean[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare task record; known bigint; inserted bigint; key_passed_on boolean;
begin
    -- Assigns ids and due times first, in the order of the call. Keeps whole rows: a subscript of a text array reads
    -- all elements before it.
    ids := array(select nextval('everpoll.tasks_id_seq') from unnest(names));
    are_new := array_fill(true, array[cardinality(ids)]);
    for task in
        select * from (
            select u.*, clock_timestamp() + u.delay_s * interval '1 second' as due_at
              from unnest(ids, delays_s, queues, names, ranks, argss, timeouts_s, kinds, versions, memories, keys,
                          onces, cancel_themselves, are_indexed, limit_keys, limits_running, limits_starts,
                          limits_per_s, replaces, windows_s) with ordinality
                   u(id, delay_s, queue, name, rank, args, timeout_s, kind, version, memory, key, once, cancels_itself,
                     indexed, limit_key, limit_running, limit_starts, limit_per_s, replaces, window_s, place)
            offset 0) numbered
         order by numbered.key collate "C", numbered.kind collate "C", numbered.place loop
        key_passed_on := false;
        loop
            if task.replaces then
                select r.task_id, key_passed_on or r.has_lost_key into known, key_passed_on
                  from everpoll.replace(task.kind, task.key, task.due_at, task.delay_s, task.queue, task.name, task.rank,
                           task.args, task.timeout_s, task.version, task.memory, task.indexed, task.limit_key,
                           task.limit_running, task.limit_starts, task.limit_per_s) r;
            else
                select t.id into known from everpoll.tasks t where t.key = task.key and t.kind = task.kind;
            end if;
            if known is null and task.once then
                known := everpoll.last_ended(task.kind, task.key);
            end if;
            if known is null and task.window_s is not null and not key_passed_on then
                known := everpoll.ended_within(task.kind, task.key, task.window_s);
            end if;
            if known is not null then
                ids[task.place] := known;
                are_new[task.place] := false;
                exit;
            end if;
            insert into everpoll.tasks (id, due_at, line, queue, name, rank, args, timeout_s, kind, version, memory,
                key, cancels_itself, indexed, limit_key, limit_running, limit_starts, limit_per_s)
            values (task.id, task.due_at,
                    case when task.delay_s > 0 then 1 when task.limit_key is null then 0 else 3 end, task.queue, task.name,
                    task.rank, task.args, task.timeout_s, task.kind, task.version, task.memory, task.key,
                    task.cancels_itself, task.indexed, task.limit_key, task.limit_running, task.limit_starts,
                    task.limit_per_s)
            on conflict (key, kind) where key is not null do nothing returning tasks.id into inserted;
            continue when inserted is null;
            exit when (not task.once or everpoll.last_ended(task.kind, task.key) is null)
                  and (task.window_s is null or key_passed_on
                       or everpoll.ended_within(task.kind, task.key, task.window_s) is null);
            delete from everpoll.tasks t where t.id = task.id;
        end loop;
    end loop;
    if event_places is not null then
        perform everpoll.append_events(
            array(select case when are_new[u.place] then ids[u.place] end
                    from unnest(event_places) with ordinality u(place, nth) order by u.nth),
            event_seqs, event_bodies, null);
    end if;
end $$;
