-- Hands back what `me` holds without knowing: leases whose answer never reached it. It says what it does know of.
-- Waits for a lease of `me` that is still under way.
create function everpoll.recover(me bigint, held_ids bigint[], held_sequences int[], out recovered int)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set jit = off
as $$
begin
    perform pg_advisory_xact_lock(me);
    with pick as materialized (
        select t.ctid from everpoll.tasks t
        where t.line in (0, 2) and t.is_leased and t.owner = me and not exists (
            select from unnest(held_ids, held_sequences) h(id, sequence) where h.id = t.id and h.sequence = t.sequence)
        for update of t skip locked),
    back as (
        update everpoll.tasks t
        set owner = null, is_leased = false, line = 0, attempt = t.attempt - 1, worker = w.label, trail = everpoll.remember(
            t.trail, w.label, '{"what":"give-back","why":"the answer to its lease was lost on the way"}')
        from (select max(one.label) as label from everpoll.workers one where one.incarnation = me) w
        where t.ctid = any(array(select ctid from pick)) and t.is_leased and t.owner = me
        returning t.id)
    select count(*) into recovered from back;
    -- It may have less room than that, or be on its way out.
    if recovered > 0 then perform pg_notify('everpoll', ''); end if;
end $$;
