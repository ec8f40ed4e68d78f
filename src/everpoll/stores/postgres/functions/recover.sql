-- Makes worker and server agree about the leases of `me`, after a call with an unknown outcome and after a reconnect.
-- The worker passes the leases that it holds. The function hands back leases whose answers never reached the worker. It
-- restores leases that the server lost in a crash (the server's sequence is behind the worker's, which only a lost lease
-- explains), so that no other worker runs the same tasks. It waits for a lease of `me` that is still under way.
create function everpoll.recover(me bigint, held_ids bigint[], held_sequences int[], out recovered int)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set jit = off
as $$
begin
    perform pg_advisory_xact_lock(me);
    with pick as materialized (
        select t.ctid from everpoll.tasks t
        where t.ctid = any(everpoll.leased_lately(array[me]) || array(
                  select held.ctid from everpoll.tasks held where held.line = 2 and held.held_by = me))
          and t.is_leased and t.owner = me and not exists (
            select from unnest(held_ids, held_sequences) h(id, sequence) where h.id = t.id and h.sequence = t.sequence)
        for update of t skip locked),
    back as (
        update everpoll.tasks t
        set owner = null, is_leased = false, line = case when t.limit_key is null then 0 else 3 end,
            attempt = t.attempt - 1, worker = w.label, trail = everpoll.remember(
            t.trail, w.label, '{"what":"hand-back","why":"the answer to its lease was lost on the way"}')
        from (select max(one.label) as label from everpoll.workers one where one.incarnation = me) w
        where t.ctid = any(array(select ctid from pick)) and t.is_leased and t.owner = me
        returning t.id)
    select count(*) into recovered from back;
    if cardinality(held_ids) > 0 then
        perform from everpoll.workers w where w.incarnation = me and w.stopped_at is null for key share;
        if found then
            update everpoll.tasks t
            set owner = me, is_leased = true, line = case when t.limit_key is null then 0 else 4 end, sequence = h.sequence, attempt = t.attempt + 1,
                started_at = clock_timestamp()
            from unnest(held_ids, held_sequences) h(id, sequence)
            where t.id = any(held_ids) and t.id = h.id and not t.is_leased and t.sequence < h.sequence;
        end if;
    end if;
    -- The worker may have fewer free slots than that, or be stopping.
    if recovered > 0 then perform pg_notify('everpoll', ''); end if;
end $$;
