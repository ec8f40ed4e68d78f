-- The indexed task of that kind with that key that ended last. Without sorts, here and below, only the index that has
-- the order is left to the planner; else it takes the one on ids and filters, where it expects few such tasks.
create function everpoll.last_ended(wanted_kind text, wanted_key text, out found_id bigint)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    select h.id into found_id from everpoll.history h
    where h.indexed and h.kind = wanted_kind and h.key = wanted_key
    order by h.kind desc, h.key desc, h.ended_at desc, h.id desc limit 1;
end $$;

-- The live indexed tasks of a kind, newest first, with their JSON as it is written.
create function everpoll.live_of_kind(wanted_kind text, most int, before bigint)
returns table (id bigint, key text, cancel_requested boolean, args text, memory text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
    select t.id, t.key, t.cancel_requested, t.args, t.memory from everpoll.tasks t
    where t.indexed and t.kind = wanted_kind and t.id < before order by t.kind desc, t.id desc limit most
$$;

-- The results of the indexed tasks of that kind and name that ended last.
create function everpoll.last_results(wanted_kind text, wanted_name text, most int) returns setof text
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query select h.result from everpoll.history h
    where h.indexed and h.kind = wanted_kind and h.name = wanted_name and h.result is not null and h.result <> 'null'
    order by h.kind desc, h.name desc, h.ended_at desc, h.id desc limit most;
end $$;

-- Two ids between which the first live or ended task is that was enqueued at that instant or later, at most 100 apart.
-- Ids grow with time, nearly evenly: every other step goes where an even growth would have it, the others to the middle,
-- so that no history takes more than twice the steps of halving. Over 38 partitions a step is 0.3 ms or more; halving
-- took 20 of them for a million tasks, this takes 3 to 8.
create function everpoll.first_since(is_live boolean, since timestamptz, out low bigint, out high bigint)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    low_at timestamptz; high_at timestamptz; middle bigint; found_id bigint; found_at timestamptz; step int := 0;
begin
    if is_live then
        select t.id, t.created_at into low, low_at from everpoll.tasks t order by t.id limit 1;
        select t.id + 1, t.created_at into high, high_at from everpoll.tasks t order by t.id desc limit 1;
    else
        select h.id, h.created_at into low, low_at from everpoll.history h order by h.id limit 1;
        select h.id + 1, h.created_at into high, high_at from everpoll.history h order by h.id desc limit 1;
    end if;
    if low is null or low_at >= since then
        high := coalesce(low, 0);
        low := high;
    elsif high_at < since then
        low := high;
    end if;
    while high - low > 100 loop
        step := step + 1;
        middle := (low + high) / 2;
        if step % 2 = 1 and high_at > low_at then
            middle := low + ((high - low) * greatest(0.0, least(1.0, extract(epoch from since - low_at)::float8
                / extract(epoch from high_at - low_at)::float8)))::bigint;
            -- Beside the place that is expected: the next step then has it between two near ones.
            middle := case when step % 4 = 1 then middle - 50 else middle + 50 end;
            middle := greatest(low + 1, least(high - 1, middle));
        end if;
        if is_live then
            select t.id, t.created_at into found_id, found_at from everpoll.tasks t
            where t.id >= middle order by t.id limit 1;
        else
            select h.id, h.created_at into found_id, found_at from everpoll.history h
            where h.id >= middle order by h.id limit 1;
        end if;
        if found_id is null or found_id >= high then
            high := middle;
        elsif found_at >= since then
            high := middle;
            high_at := found_at;
        else
            low := found_id;
            low_at := found_at;
        end if;
    end loop;
end $$;
