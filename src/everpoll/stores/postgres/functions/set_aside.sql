-- Makes tasks due that workers have set aside because they could not run them; returns how many. Finds them by the index
-- of errors, which has no others. A task is set aside only if its last note says so, not if it was run since.
--   names, newest: the tasks that the calling worker can run, and the newest version of the arguments of each.
create function everpoll.release_set_aside(names text[], newest int[], queues text[], most int, out released int)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    with pick as materialized (
        select t.ctid from everpoll.tasks t
        where t.error_type = '{unknown job}' and t.line = 1 and not t.is_leased and t.queue = any(queues)
          and t.version <= newest[array_position(names, t.name)]
          and t.trail[cardinality(t.trail)] like '%"what":"{set aside}"%'
        order by t.error_type, t.id limit most for update skip locked)
    update everpoll.tasks t
       set due_at = least(t.due_at, t.created_at), line = case when t.limit_key is null then 0 else 3 end
     where t.ctid = any(array(select p.ctid from pick p)) and t.line = 1 and not t.is_leased;
    get diagnostics released = row_count;
end $$;
