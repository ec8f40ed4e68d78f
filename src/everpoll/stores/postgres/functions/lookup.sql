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

-- The first id of a live or an ended task that was enqueued at that instant or later, by halves: ids grow with time.
create function everpoll.first_since(is_live boolean, since timestamptz, out low bigint)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare high bigint; middle bigint; found_id bigint; found_at timestamptz;
begin
    low := 0;
    if is_live then
        select t.id + 1 into high from everpoll.tasks t order by t.id desc limit 1;
    else
        select h.id + 1 into high from everpoll.history h order by h.id desc limit 1;
    end if;
    while low < high loop
        middle := (low + high) / 2;
        if is_live then
            select t.id, t.created_at into found_id, found_at from everpoll.tasks t
            where t.id >= middle order by t.id limit 1;
        else
            select h.id, h.created_at into found_id, found_at from everpoll.history h
            where h.id >= middle order by h.id limit 1;
        end if;
        if found_id is null or found_at >= since then high := middle; else low := found_id + 1; end if;
    end loop;
end $$;
