-- Moves tasks to history. A task that is not there under its sequence any more is left out; `only_of`: nor one that
-- another worker holds. Returns the ids that were moved. Absent arrays are null.
--   labels: of the worker that held it, kept with the row. bys: who decided, for the trail. refunds: attempts given
--   back. rescued: rescues to be added. is_cancel: the row says that it was asked to cancel.
-- The ordinary end (done, nothing to say) has a shorter way of its own in settle.sql.
create function everpoll.move(only_of bigint, ids bigint[], sequences int[], states text[], results text[],
    labels text[], bys text[], notes text[], refunds int[], memories text[], rescued int[], is_cancel boolean,
    out moved bigint[])
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
    select array_agg(e.id) into moved from ended e;
end $$;
