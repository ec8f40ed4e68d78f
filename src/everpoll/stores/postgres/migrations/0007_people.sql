-- A queued task ends as canceled; a running one is asked to, and its worker is told. The state after that; null:
-- unknown. A watch is only ever asked, as soon as can be: it is due now. One that runs was due before it began, and now
-- is after that, so that its settlement can tell that it did not know.
create function everpoll.cancel(task_id bigint, note text, out state text, out is_changed boolean)
language plpgsql volatile as $$
declare held boolean; its_kind text;
begin
    is_changed := false;
    select t.is_leased, t.kind into held, its_kind from everpoll.tasks t where t.id = task_id for update;
    if not found then
        -- After the lock, by a snapshot of its own: what was settled meanwhile is here.
        select h.state into state from everpoll.history h where h.id = task_id;
        return;
    end if;
    is_changed := true;
    if its_kind = 'watch' then
        update everpoll.tasks t
        set cancel_requested = true, trail = everpoll.remember(t.trail, '', note), is_due = true,
            due_at = case when t.is_leased then greatest(clock_timestamp(), t.leased_at + interval '1 microsecond')
                          else least(clock_timestamp(), t.due_at) end
        where t.id = task_id;
        perform pg_notify('everpoll', 'c');
        state := case when held then 'running' else 'queued' end;
        return;
    end if;
    if held then
        update everpoll.tasks t set cancel_requested = true, trail = everpoll.remember(t.trail, '', note)
        where t.id = task_id;
        perform pg_notify('everpoll', 'c');
        state := 'running';
        return;
    end if;
    with gone as (delete from everpoll.tasks t where t.id = task_id returning t.*)
    insert into everpoll.history (id, due_at, created_at, owner, leased_at, timeout_s, lease, rank, attempt, rescues,
        version, cancel_requested, state, kind, queue, name, key, worker, args, memory, progress, trail)
    select g.id, g.due_at, g.created_at, g.owner, g.leased_at, g.timeout_s, g.lease, g.rank, g.attempt, g.rescues,
        g.version, true, 'canceled', g.kind, g.queue, g.name, g.key, g.worker, g.args, g.memory, g.progress,
        everpoll.remember(g.trail, '', note) from gone g;
    state := 'canceled';
end $$;

-- An ended task is due again under its own id, its sequence going on. False: not ended, or its key has a live task.
create function everpoll.retry(task_id bigint, note text) returns boolean
language plpgsql volatile as $$
begin
    with gone as (delete from everpoll.history h where h.id = task_id returning h.*)
    insert into everpoll.tasks (id, created_at, timeout_s, lease, rank, version, kind, queue, name, key, args, memory,
        trail)
    select g.id, g.created_at, g.timeout_s, g.lease, g.rank, g.version, g.kind, g.queue, g.name, g.key, g.args,
        g.memory, everpoll.remember(g.trail, '', note) from gone g;
    return found;
exception when unique_violation then
    return false;
end $$;

-- Enqueues a batch in which some carry a key that may have a live task already: that one answers then. All or none.
-- Ids and due times are given in the order of the call, but rows are inserted in the order of their keys, so that two
-- batches with the same keys never wait for each other crosswise. Whoever has the key may end between the insert and
-- the look for it: then the insert is tried again.
create function everpoll.enqueue_keyed(queues text[], names text[], ranks int[], argss text[], delays_s float8[],
    timeouts_s float8[], kinds text[], versions int[], memories text[], keys text[],
    out ids bigint[], out are_new boolean[])
language plpgsql volatile
set enable_seqscan = off set enable_mergejoin = off set jit = off
as $$
declare new_ids bigint[]; new_dues timestamptz[]; put bigint[]; place int; live bigint; inserted bigint;
begin
    select array_agg(n.id order by n.place), array_agg(n.due_at order by n.place) into new_ids, new_dues from (
        select u.place, nextval('everpoll.tasks_id_seq') as id,
               clock_timestamp() + u.delay_s * interval '1 second' as due_at
          from unnest(delays_s) with ordinality u(delay_s, place)) n;
    with fresh as (
        insert into everpoll.tasks (id, due_at, is_due, queue, name, rank, args, timeout_s, kind, version, memory, key)
        select u.id, u.due_at, u.delay_s <= 0, u.queue, u.name, u.rank, u.args, u.timeout_s, u.kind, u.version,
               u.memory, u.key
          from unnest(new_ids, new_dues, delays_s, queues, names, ranks, argss, timeouts_s, kinds, versions, memories,
                      keys)
               u(id, due_at, delay_s, queue, name, rank, args, timeout_s, kind, version, memory, key)
         order by u.key collate "C", u.id
        on conflict (key) where key is not null do nothing returning tasks.id)
    select array_agg(r.id) into put from fresh r;
    ids := new_ids;
    are_new := array_fill(true, array[cardinality(new_ids)]);
    if cardinality(put) = cardinality(new_ids) then return; end if;

    -- Of equal keys in one call the first has the smallest id, and came first.
    for place in select u.place from unnest(new_ids) with ordinality u(id, place)
                  where u.id <> all(coalesce(put, '{}')) order by u.place loop
        loop
            select t.id into live from everpoll.tasks t where t.key = keys[place];
            if found then
                ids[place] := live;
                are_new[place] := false;
                exit;
            end if;
            insert into everpoll.tasks (id, due_at, is_due, queue, name, rank, args, timeout_s, kind, version, memory,
                key)
            values (new_ids[place], new_dues[place], delays_s[place] <= 0, queues[place], names[place], ranks[place],
                    argss[place], timeouts_s[place], kinds[place], versions[place], memories[place], keys[place])
            on conflict (key) where key is not null do nothing returning tasks.id into inserted;
            exit when inserted is not null;
        end loop;
    end loop;
end $$;

-- Every queue that has a live task, by jumping from name to name in the indexes.
create function everpoll.queue_names() returns setof text
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with recursive names(queue) as (
        select least((select t.queue from everpoll.tasks t where t.is_due order by t.queue limit 1),
                     (select t.queue from everpoll.tasks t where not t.is_due order by t.queue limit 1))
        union all
        select least((select t.queue from everpoll.tasks t
                       where t.is_due and t.queue > n.queue order by t.queue limit 1),
                     (select t.queue from everpoll.tasks t
                       where not t.is_due and t.queue > n.queue order by t.queue limit 1))
          from names n where n.queue is not null)
    select n.queue from names n where n.queue is not null
$$;

-- Who runs how much in which queue, and what else is ready there. What runs stands at the head of its queue's line, so
-- the first `most` entries of each are looked at, and never everything.
create function everpoll.heads(most int) returns table (queue text, owner bigint, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select q.queue, h.owner, count(*) from everpoll.queue_names() q(queue) cross join lateral (
        select t.owner from everpoll.tasks t where t.is_due and t.queue = q.queue
        order by t.queue, t.rank, t.due_at, t.id limit most) h
    group by q.queue, h.owner
$$;

create function everpoll.waits(most int) returns table (queue text, is_late boolean, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select q.queue, h.is_late, count(*) from everpoll.queue_names() q(queue) cross join lateral (
        select t.due_at <= now() as is_late from everpoll.tasks t where not t.is_due and t.queue = q.queue
        order by t.queue, t.due_at limit most) h
    group by q.queue, h.is_late
$$;
