-- Moves tasks to history; returns their ids. Leaves out a task whose sequence has changed, and, with `only_of`, a task
-- that another worker holds. Absent arrays are null.
--   labels: of the worker that held it, kept with the row. bys: the actor, for the trail. refunds: attempts that are
--   refunded. rescued: rescues to be added. is_cancel: the row says that it was asked to cancel.
--   link_*: what to report (report_ends) for tasks whose end another task waits for and has not been told yet.
create function everpoll.put_away(only_of bigint, ids bigint[], sequences int[], states text[], results text[],
    labels text[], bys text[], notes text[], refunds int[], memories text[], rescued int[], is_cancel boolean,
    out moved bigint[], out link_ids bigint[], out link_names text[], out link_states text[], out link_results text[],
    out links_to bigint[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    with gone as (
        delete from everpoll.tasks t
        using unnest(ids, sequences, states, results, labels, bys, notes, refunds, memories, rescued)
            u(id, sequence, state, result, label, by, note, refund, remembered, rescued)
        where t.id = any(ids) and t.id = u.id and t.sequence = u.sequence and (only_of is null or t.owner = only_of)
        returning t.*, u.state, u.result, u.label, u.by, u.note, u.refund, u.remembered, u.rescued),
    ended as (
        insert into everpoll.history (id, {kept}, attempt, rescues, cancel_requested, state, worker, memory, trail,
            result, error_type)
        select g.id, {g.kept}, g.attempt - coalesce(g.refund, 0), g.rescues + coalesce(g.rescued, 0),
            g.cancel_requested or is_cancel, coalesce(g.state, 'done'), coalesce(g.label, g.worker),
            coalesce(g.remembered, g.memory), everpoll.remember(g.trail, g.by, g.note), g.result,
            coalesce(everpoll.error_class(g.note), g.error_type)
        from gone g returning history.id)
    select array_agg(g.id), array_agg(g.id) filter (where g.then_id is not null and not g.has_told),
           array_agg(g.name) filter (where g.then_id is not null and not g.has_told),
           array_agg(coalesce(g.state, 'done')) filter (where g.then_id is not null and not g.has_told),
           array_agg(g.result) filter (where g.then_id is not null and not g.has_told),
           array_agg(g.then_id) filter (where g.then_id is not null and not g.has_told)
      into moved, link_ids, link_names, link_states, link_results, links_to from gone g;
end $$;

-- Moves tasks to history and reports their ends to the tasks that wait for them; the commit wakes workers if one of
-- those may start. Every end of a task takes this function, except a settlement: it reports once for its whole batch,
-- and has a shorter statement for tasks that are done without a result or a note.
create function everpoll.move(only_of bigint, ids bigint[], sequences int[], states text[], results text[],
    labels text[], bys text[], notes text[], refunds int[], memories text[], rescued int[], is_cancel boolean,
    out moved bigint[])
language plpgsql volatile
as $$
declare away record;
begin
    select * into away from everpoll.put_away(only_of, ids, sequences, states, results, labels, bys, notes, refunds,
        memories, rescued, is_cancel);
    moved := away.moved;
    if away.links_to is not null and everpoll.report_ends(away.link_ids, away.link_names, away.link_states,
            away.link_results, away.links_to) is not null then
        perform pg_notify('everpoll', '');
    end if;
end $$;
