-- Returns the arguments, with the result of the previous task as `input`.
create function everpoll.with_input(args text, result text) returns text
language sql immutable
return '{"input":' || coalesce(result, 'null') || ',' || substr(args, 2);

-- Reports ended tasks to the tasks that wait for them: link i reports the end of task link_ids[i], named link_names[i],
-- to task links_to[i]. due_s: in how many seconds the first task is due that now waits for no other; null: none does.
--   takes = 'end': the task waits for one task fewer; after the last one it is queued. takes = 'result': after `done` the
--   task is queued, with the result in its arguments; after any other end it is canceled, and so are the tasks that wait
--   for it. The notes of all of them name the first cause.
-- A task has a smaller id than those that it waits for. The function first locks all tasks that it may change, from the
-- largest id down, the order in which `cancel` locks them too, so that two transactions cannot deadlock.
create function everpoll.report_ends(link_ids bigint[], link_names text[], link_states text[], link_results text[],
    links_to bigint[], out due_s float8)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare reached bigint[]; soonest float8; away record; cancels record; cause_states text[] := link_states;
begin
    if 'done' = all(link_states) then
        reached := links_to;
    else
        with recursive behind(id, is_bad) as (
            select u.id, u.state <> 'done' from unnest(links_to, link_states) u(id, state)
            union
            select t.then_id, true from behind b join everpoll.tasks t on t.id = b.id
             where b.is_bad and t.takes = 'result' and t.then_id is not null and not t.has_told)
        select array_agg(distinct b.id) into reached from behind b;
    end if;
    perform from everpoll.tasks t where t.id = any(reached) order by t.id desc for update;

    while links_to is not null loop
        with fewer as (
            update everpoll.tasks t
               set blockers = t.blockers - u.ends,
                   line = case when t.blockers > u.ends then t.line when t.due_at > t.created_at then 1
                               when t.limit_key is null then 0 else 3 end,
                   due_at = case when t.blockers > u.ends then t.due_at
                                 else clock_timestamp() + greatest(t.due_at - t.created_at, interval '0') end
              from (select l.id, count(*)::int as ends from unnest(links_to) l(id) group by l.id) u
             where t.id = any(links_to) and t.id = u.id and t.takes = 'end' and t.line = 5
            returning t.blockers, t.due_at),
        next as (
            update everpoll.tasks t
               set blockers = 0, args = everpoll.with_input(t.args, u.result),
                   line = case when t.due_at > t.created_at then 1 when t.limit_key is null then 0 else 3 end,
                   due_at = clock_timestamp() + greatest(t.due_at - t.created_at, interval '0')
              from unnest(links_to, link_states, link_results) u(id, state, result)
             where t.id = any(links_to) and t.id = u.id and t.takes = 'result' and t.line = 5 and u.state = 'done'
            returning t.blockers, t.due_at)
        select extract(epoch from min(o.due_at) - clock_timestamp()) into soonest
          from (select * from fewer union all select * from next) o where o.blockers = 0;
        if soonest is not null then due_s := least(due_s, greatest(soonest, 0)); end if;
        exit when 'done' = all(link_states);

        select array_agg(t.id) as ids, array_agg(t.sequence) as sequences, array_agg(u.cause) as causes,
               array_agg(u.name) as names, array_agg(u.cause_state) as states,
               array_agg(json_build_object('what', 'canceled', 'why', format('task %s (%s), which comes before it, %s',
                       u.cause, u.name, case when u.cause_state = 'failed' then 'failed' else 'was canceled' end),
                   'cause', u.cause, 'cause_name', u.name)::text) as notes
          into cancels
          from unnest(links_to, link_ids, link_names, link_states, cause_states) u(id, cause, name, state, cause_state)
          join everpoll.tasks t on t.id = u.id
         where t.id = any(links_to) and t.takes = 'result' and t.line = 5 and u.state <> 'done';
        links_to := null;
        if cancels.ids is not null then
            select * into away from everpoll.put_away(null, cancels.ids, cancels.sequences,
                array_fill('canceled'::text, array[cardinality(cancels.ids)]), null, null,
                array_fill(''::text, array[cardinality(cancels.ids)]), cancels.notes, null, null, null, false);
            perform everpoll.append_events(cancels.ids, array_fill(-1::bigint, array[cardinality(cancels.ids)]),
                cancels.notes, null);
            select array_agg(a.then_id), array_agg(c.cause), array_agg(c.name), array_agg('canceled'::text),
                   array_agg(null::text), array_agg(c.state)
              into links_to, link_ids, link_names, link_states, link_results, cause_states
              from unnest(away.links_to, away.link_ids) a(then_id, id)
              join unnest(cancels.ids, cancels.causes, cancels.names, cancels.states) c(id, cause, name, state)
                on c.id = a.id;
        end if;
    end loop;
end $$;

-- The tasks that this one waits for, live or ended, by id after `after`.
create function everpoll.member_ids(task_id bigint, after bigint, most int) returns bigint[]
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select array(select one.id from (
        select t.id from everpoll.tasks t where t.then_id = task_id and t.id > after
        union all select h.id from everpoll.history h where h.then_id = task_id and h.id > after) one
     order by one.id limit most)
$$;

-- How many of them are in which state.
create function everpoll.member_counts(task_id bigint) returns table (state text, tasks bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    select case when t.is_leased then 'running' else 'queued' end, count(*)
      from everpoll.tasks t where t.then_id = task_id group by 1
    union all select h.state, count(*) from everpoll.history h where h.then_id = task_id group by h.state
$$;
