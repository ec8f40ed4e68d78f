-- Takes back what dead workers hold, and what runs past its deadline. The workers table says whether there is anything
-- to do (a few rows); only then the leased tasks are looked for, by a walk of tasks_ready, since there is no index on
-- owner.
--
-- A worker whose lease ran out is buried under a lock that a lease of its own holds off, and that holds off such a
-- lease: whoever leases afterwards learns that it is dead, whatever was leased before is found here. Each is buried by
-- one. A lease under way takes milliseconds, so it is waited for, but not for long: its client may be frozen with the
-- answer half sent. Tasks that somebody else has locked (a settlement under way) are left; their worker stays open for
-- the next beat.
create function everpoll.rescue(grace_s float8, most_rescues int, out rescued int)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '300ms'
as $$
declare
    stopped bigint[]; overdue bigint[]; taken int;
    seen tid[]; seen_owners bigint[]; seen_deadlines timestamptz[]; seen_lost boolean[];
begin
    rescued := 0;
    perform from everpoll.workers w where not w.is_clear and (
        w.stopped_at is not null or w.expires_at < now() or w.overdue_at < now() - grace_s * interval '1 second');
    if not found then return; end if;

    begin
        select array_agg(w.owner) into stopped from (
            select w.owner from everpoll.workers w
            where not w.is_clear and (w.stopped_at is not null or w.expires_at < now())
            order by w.owner for update) w;
    exception when lock_not_available then
        select array_agg(w.owner) into stopped from (
            select w.owner from everpoll.workers w
            where not w.is_clear and (w.stopped_at is not null or w.expires_at < now()) for update skip locked) w;
    end;
    update everpoll.workers w set stopped_at = now() where w.owner = any(stopped) and w.stopped_at is null;
    select array_agg(w.owner) into overdue from (
        select w.owner from everpoll.workers w
        where not w.is_clear and w.stopped_at is null and w.overdue_at < now() - grace_s * interval '1 second'
        for no key update skip locked) w;
    if stopped is null and overdue is null then return; end if;

    select array_agg(t.ctid), array_agg(t.owner), array_agg(t.deadline_at),
           array_agg(coalesce(t.owner = any(stopped), false)
                     or coalesce(t.deadline_at < now() - grace_s * interval '1 second', false))
      into seen, seen_owners, seen_deadlines, seen_lost
      from (select t.ctid, t.owner, t.leased_at + t.timeout_s * interval '1 second' as deadline_at
              from everpoll.tasks t
             where t.is_due and t.is_leased and (t.owner = any(stopped) or t.owner = any(overdue))) t;

    with lost as materialized (
        select t.ctid, t.owner, coalesce(t.owner = any(stopped), false) as is_dead from everpoll.tasks t
        where t.ctid = any(array(select s.row from unnest(seen, seen_lost) s(row, is_lost) where s.is_lost))
          and t.is_leased and (t.owner = any(stopped) or t.owner = any(overdue)) for update skip locked),
    labels as materialized (
        select w.owner, w.label from everpoll.workers w where w.owner in (select l.owner from lost l)),
    noted as materialized (
        select l.ctid as row, w.label, l.is_dead from lost l left join labels w on w.owner = l.owner),
    ended as (
        delete from everpoll.tasks t using noted n
        where t.ctid = n.row and t.ctid = any(array(select l.ctid from lost l)) and t.is_leased
          and (t.rescues + 1 >= most_rescues or (t.cancel_requested and t.kind <> 'watch'))
        returning t.*, n.label, n.is_dead),
    moved as (
        insert into everpoll.history (id, due_at, created_at, owner, leased_at, timeout_s, lease, rank, attempt,
            rescues, version, cancel_requested, state, kind, queue, name, key, worker, args, memory, progress, trail)
        select e.id, e.due_at, e.created_at, e.owner, e.leased_at, e.timeout_s, e.lease, e.rank, e.attempt - 1,
            e.rescues + 1, e.version, e.cancel_requested,
            case when e.cancel_requested and e.kind <> 'watch' then 'canceled' else 'failed' end,
            e.kind, e.queue, e.name, e.key, e.label, e.args, e.memory, e.progress,
            everpoll.remember(e.trail, 'rescue', everpoll.rescue_note(
                e.rescues + 1 >= most_rescues, e.is_dead, e.label, e.leased_at, e.rescues + 1))
        from ended e returning history.id),
    back as (
        update everpoll.tasks t
        set owner = null, is_leased = false, attempt = t.attempt - 1, rescues = t.rescues + 1, worker = n.label,
            trail = everpoll.remember(t.trail, 'rescue', everpoll.rescue_note(
                false, n.is_dead, n.label, t.leased_at, t.rescues + 1))
        from noted n
        where t.ctid = n.row and t.ctid = any(array(select l.ctid from lost l)) and t.is_leased
          and t.rescues + 1 < most_rescues and (not t.cancel_requested or t.kind = 'watch')
        returning t.id)
    select (select count(*) from moved) + (select count(*) from back) into rescued;

    select count(*) into taken from unnest(seen_lost) s(is_lost) where s.is_lost;
    if rescued >= taken then
        update everpoll.workers w set is_clear = true where w.owner = any(stopped);
    end if;
    update everpoll.workers w
    set overdue_at = (select min(s.deadline_at) from unnest(seen_owners, seen_deadlines) s(owner, deadline_at)
                      where s.owner = w.owner and s.deadline_at >= now() - grace_s * interval '1 second')
    where w.owner = any(overdue) and rescued >= taken;
end $$;

create function everpoll.rescue_note(is_poison boolean, is_dead boolean, label text, started_at timestamptz, times int)
returns text language sql stable
return json_build_object(
    'what', case when is_poison then 'failed' else 'rescue' end,
    'why', case when is_dead then 'its worker was lost' else 'it ran past its deadline' end,
    'worker', label, 'started_at', extract(epoch from started_at), 'rescues', times)::text;

-- One heartbeat: the worker's lease is extended, what is lost is rescued, and of `running` those are named that
-- somebody wants canceled. overdue_s: seconds until the nearest deadline of what it runs; null leaves what its leases
-- wrote. most_rescues: null rescues nothing, for a worker that was cut off itself and cannot know whether the others
-- were. Not alive: this incarnation was given up. Makes the partitions of the days to come, when they are missing.
create function everpoll.beat(me bigint, lease_s float8, overdue_s float8, running bigint[],
    grace_s float8, most_rescues int, out is_alive boolean, out rescued int, out canceled bigint[])
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    rescued := 0;
    update everpoll.workers w
    set beat_at = now(), expires_at = now() + lease_s * interval '1 second',
        overdue_at = coalesce(now() + overdue_s * interval '1 second', w.overdue_at)
    where w.owner = me and w.stopped_at is null;
    is_alive := found;
    if not is_alive then return; end if;
    if most_rescues is not null then
        rescued := everpoll.rescue(grace_s, most_rescues);
    end if;
    -- Whoever beats may have no free slot: those who have are told.
    if rescued > 0 then perform pg_notify('everpoll', ''); end if;
    if cardinality(running) > 0 then
        select array_agg(t.id) into canceled from everpoll.tasks t where t.id = any(running) and t.cancel_requested;
    end if;
    perform everpoll.make_partitions(3, 7);
end $$;
