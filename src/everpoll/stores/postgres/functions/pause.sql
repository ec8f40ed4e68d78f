-- Pauses a queue: workers lease nothing from it until it is resumed.
create function everpoll.pause(its_queue text, its_reason text, its_actor text, body text) returns void
language plpgsql volatile as $$
begin
    insert into everpoll.pauses (queue, reason, paused_by) values (its_queue, its_reason, its_actor)
    on conflict (queue) do update set reason = excluded.reason, paused_by = excluded.paused_by, at = excluded.at;
    perform everpoll.log_events(array[0::bigint], array['queue'::text], array[its_queue], array[null::text], array[body]);
end $$;

-- Resumes a queue and notifies workers; false: it was not paused.
create function everpoll.resume(its_queue text, body text) returns boolean
language plpgsql volatile as $$
begin
    delete from everpoll.pauses p where p.queue = its_queue;
    if not found then return false; end if;
    perform everpoll.log_events(array[0::bigint], array['queue'::text], array[its_queue], array[null::text], array[body]);
    perform pg_notify('everpoll', '');
    return true;
end $$;

-- The earliest due time of what is ready in each queue: the first task of each of the first 5,000 priorities,
-- and the first that waits although it is due.
create function everpoll.oldest_due() returns table (queue text, due_at timestamptz)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with firsts(queue, due_at) as (
        select r.queue, head.due_at from everpoll.first_ranks(5000) r cross join lateral (
            select t.due_at from everpoll.tasks t
            where t.line = 0 and not t.is_leased and t.queue = r.queue and t.rank = r.rank
            order by t.queue, t.rank, t.due_at, t.id limit 1) head
        union all
        select q.queue, head.due_at from everpoll.queue_names() q(queue) cross join lateral (
            select t.due_at from everpoll.tasks t where t.line = 1 and t.queue = q.queue and t.due_at <= now()
              and not t.is_leased
            order by t.queue, t.due_at limit 1) head)
    select f.queue, min(f.due_at) from firsts f group by f.queue
$$;
