-- One heartbeat: increments the worker's beat number; returns the numbers of the other workers, and those of the tasks
-- `running` that are to be canceled. Not alive: this incarnation was declared dead. has_leftovers: a stopped worker
-- still holds tasks.
-- Running tasks that were leased more than a few seconds ago leave the indexes of ready and waiting tasks (line 2), so
-- that polls do not read them. Makes the partitions of the coming days, if they are missing.
create function everpoll.beat(me bigint, its_lease_s float8, running bigint[], out is_alive boolean,
    out has_leftovers boolean, out canceled bigint[], out others bigint[], out others_beats bigint[],
    out others_lease_s float8[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    has_leftovers := false;
    update everpoll.workers w set beat_at = clock_timestamp(), beats = w.beats + 1, lease_s = its_lease_s
    where w.incarnation = me and w.stopped_at is null;
    is_alive := found;
    if not is_alive then return; end if;
    select array_agg(w.incarnation) filter (where w.stopped_at is null),
           array_agg(w.beats) filter (where w.stopped_at is null),
           array_agg(w.lease_s) filter (where w.stopped_at is null), bool_or(w.stopped_at is not null)
      into others, others_beats, others_lease_s, has_leftovers
      from everpoll.workers w where not w.is_clear and w.incarnation <> me;
    if cardinality(running) > 0 then
        select array_agg(t.id) into canceled from everpoll.tasks t where t.id = any(running) and t.cancel_requested;
        with pick as materialized (
            select t.ctid from everpoll.tasks t
            where t.id = any(running) and t.line in (0, 1) and t.is_leased and t.owner = me
              and t.started_at < clock_timestamp() - interval '5 seconds'
            for update skip locked)
        update everpoll.tasks t set line = 2, held_by = me where t.ctid = any(array(select p.ctid from pick p));
    end if;
    perform everpoll.make_partitions(3, 7);
end $$;
