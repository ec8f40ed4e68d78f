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
