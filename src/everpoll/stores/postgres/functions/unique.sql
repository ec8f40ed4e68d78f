-- The ended, indexed task with that key that was enqueued less than so many seconds ago. It ended after it was enqueued,
-- so older partitions are not read.
create function everpoll.ended_within(wanted_kind text, wanted_key text, window_s float8, out found_id bigint)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare since timestamptz := clock_timestamp() - window_s * interval '1 second';
begin
    select h.id into found_id from everpoll.history h
    where h.indexed and h.kind = wanted_kind and h.key = wanted_key and h.ended_at > since and h.created_at > since
    order by h.kind desc, h.key desc, h.ended_at desc, h.id desc limit 1;
end $$;

-- Replaces the queued task that has the key: it gets all values of the new task, and keeps its id (task_id). A running
-- task is not replaced: it loses the key and goes on (has_lost_key); so does a task that takes results of others, since
-- its arguments are partly theirs. Both null or false: no live task has the key. Takes one lock at a time: a call that
-- replaces one task waits for no lock while it holds one, so that it cannot deadlock with a settlement.
create function everpoll.replace(its_kind text, its_key text, new_due_at timestamptz, delay_s float8, new_queue text,
    new_name text, new_rank int, new_args text, new_timeout_s float8, new_version int, new_memory text,
    new_indexed boolean, new_limit_key text, new_limit_running int, new_limit_starts int, new_limit_per_s float8,
    out task_id bigint, out has_lost_key boolean)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    select t.id, t.is_leased or t.takes is not null into task_id, has_lost_key
      from everpoll.tasks t where t.key = its_key and t.kind = its_kind for update;
    if not found then
        has_lost_key := false;
    elsif has_lost_key then
        update everpoll.tasks t set key = null where t.id = task_id;
        task_id := null;
    else
        update everpoll.tasks t set
            due_at = new_due_at,
            line = case when delay_s > 0 then 1 when new_limit_key is null then 0 else 3 end,
            queue = new_queue, name = new_name, rank = new_rank, args = new_args, timeout_s = new_timeout_s,
            version = new_version, memory = new_memory, indexed = t.indexed or new_indexed,
            limit_key = new_limit_key, limit_running = new_limit_running, limit_starts = new_limit_starts,
            limit_per_s = new_limit_per_s,
            attempt = 0, rescues = 0, progress = null, started_at = null, error_type = null,
            trail = everpoll.remember(
                case when t.trail[cardinality(t.trail)] like '%"what":"replaced"%'
                     then trim_array(t.trail, 1) else t.trail end, '', '{replaced}')
        where t.id = task_id;
    end if;
end $$;
