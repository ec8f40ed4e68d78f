-- Takes back the tasks in the rows `places` that a stopped worker still has leased, or that are overdue: each is due
-- again, or ends as failed after most_rescues rescues, or as canceled if that was requested. Returns how many tasks it
-- took back, and the ids of those that ended.
create function everpoll.take_back(places tid[], stopped bigint[], overdue bigint[], most_rescues int, out taken int,
    out ends bigint[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare bodies text[];
begin
    with lost as materialized (
        select t.id, t.sequence, t.owner, t.rescues + 1 as rescues, t.started_at,
               t.owner = any(stopped) as is_dead, t.cancel_requested and not t.cancels_itself as is_canceled
          from everpoll.tasks t
         where t.ctid = any(places) and t.is_leased and (t.owner = any(stopped) or t.id = any(overdue))
         for update skip locked),
    noted as materialized (
        select l.*, w.label, l.rescues >= most_rescues or l.is_canceled as is_end,
               json_build_object(
                   'what', case when l.rescues >= most_rescues then 'failed' else 'rescue' end,
                   'why', case when l.is_dead then 'its worker was lost' else 'it ran past its deadline' end,
                   'worker', w.label, 'started_at', extract(epoch from l.started_at), 'rescues', l.rescues)::text
                   as note,
               json_build_object(
                   'what', case when l.is_canceled then 'canceled' else 'failed' end, 'by', 'rescue',
                   'why', case when l.is_dead then 'its worker was lost' else 'it ran past its deadline' end,
                   'rescues', l.rescues)::text as event
          from lost l left join everpoll.workers w on w.incarnation = l.owner),
    back as (
        update everpoll.tasks t
        set owner = null, is_leased = false, attempt = t.attempt - 1, rescues = t.rescues + 1,
            line = case when t.limit_key is null then 0 else 3 end,
            worker = n.label, trail = everpoll.remember(t.trail, 'rescue', n.note)
        from noted n where t.id = n.id and t.id = any(array(select o.id from noted o)) and not n.is_end
        returning t.id),
    ended as (
        select everpoll.move(null, array_agg(n.id), array_agg(n.sequence),
                   array_agg(case when n.is_canceled then 'canceled' else 'failed' end), null, array_agg(n.label),
                   array_agg('rescue'::text), array_agg(n.note), array_agg(1), null, array_agg(1), false) as moved,
               array_agg(n.id) as ids, array_agg(n.event) as events
          from noted n where n.is_end)
    select (select count(*) from back) + coalesce(cardinality(e.moved), 0), e.ids, e.events
      into taken, ends, bodies from ended e;
    if ends is not null then
        perform everpoll.append_events(ends, array_fill(-1::bigint, array[cardinality(ends)]), bodies, null);
    end if;
end $$;

-- Declares workers dead, and takes back the tasks of dead and stopped workers and the overdue tasks of `me`.
--   dead[i], dead_beats[i]: an incarnation, and its beat number that stood still. The function locks the worker's row and
--   then compares the number: a worker that has beaten since is not declared dead, however late this call arrives.
--   overdue[i], overdue_sequences[i]: tasks that `me` holds past their deadline.
--
-- A lease locks the same row. So either the lease comes first, and this call finds its tasks; or this call comes first,
-- and the lease fails because the worker is dead. A lease takes milliseconds, so this call waits for it, for at most
-- lock_timeout: a frozen client may have left a lease open. Tasks that a settlement has locked are left alone; their
-- worker is then not marked as clear, and the next heartbeat of any worker tries again.
-- Tasks in line 2 are found by their incarnation, those leased a moment ago by leased_lately.
create function everpoll.rescue(me bigint, dead bigint[], dead_beats bigint[], overdue bigint[],
    overdue_sequences int[], most_rescues int, out rescued int, out ended bigint[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '300ms'
as $$
declare stopped bigint[]; seen tid[]; seen_late tid[]; place tid; one record;
begin
    rescued := 0;
    begin
        select array_agg(w.incarnation) into stopped from (
            select w.incarnation from everpoll.workers w
            where not w.is_clear and (w.stopped_at is not null or w.beats = dead_beats[array_position(dead, w.incarnation)])
            order by w.incarnation for update) w;
    exception when lock_not_available then
        select array_agg(w.incarnation) into stopped from (
            select w.incarnation from everpoll.workers w
            where not w.is_clear and (w.stopped_at is not null or w.beats = dead_beats[array_position(dead, w.incarnation)])
            for update skip locked) w;
    end;
    update everpoll.workers w set stopped_at = now() where w.incarnation = any(stopped) and w.stopped_at is null;

    if stopped is not null then
        seen := array(select t.ctid from everpoll.tasks t where t.line = 2 and t.held_by = any(stopped))
             || everpoll.leased_lately(stopped);
    end if;
    seen_late := array(
        select t.ctid from everpoll.tasks t join unnest(overdue, overdue_sequences) o(id, sequence) on o.id = t.id
        where t.id = any(overdue) and t.sequence = o.sequence and t.owner = me);
    stopped := coalesce(stopped, '{}');
    seen := coalesce(seen, '{}') || seen_late;
    if cardinality(seen) > 0 then
        begin
            select * into rescued, ended from everpoll.take_back(seen, stopped, overdue, most_rescues);
        exception when others then
            -- A trigger or a constraint of the user's refuses one of the tasks: take back the others one by one.
            foreach place in array seen loop
                begin
                    select * into one from everpoll.take_back(array[place], stopped, overdue, most_rescues);
                    rescued := rescued + one.taken;
                    ended := ended || one.ends;
                exception when others then
                    raise warning 'everpoll: a task cannot be taken back: %', sqlerrm;
                end;
            end loop;
        end;
    end if;
    if rescued >= cardinality(seen) then
        update everpoll.workers w set is_clear = true where w.incarnation = any(stopped);
    end if;
    -- The caller may have no free slot: workers that have one are notified.
    if rescued > 0 then perform pg_notify('everpoll', ''); end if;
end $$;
