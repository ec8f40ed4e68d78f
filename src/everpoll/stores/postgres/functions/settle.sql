-- Settles a mixed batch of one worker. Ended tasks move to history, the others become due again. A row is touched only
-- if (owner, sequence) are still the caller's; the ids of all others are returned as lost. Absent arrays are null.
--   done_ids: ended as done, without a result or a note, all with the sequence done_sequence: these need no join
--   (measured: 3.2 against 4.2 us a row). delays_s: null keeps the place in the line. refunds: 1 refunds the attempt.
-- A task that would be due again although it is to be canceled ends as canceled. A task that cancels itself does not:
-- if the cancel was requested during this run (its due time shows that, see cancel), its handler has not seen the
-- request, so the task is due at once. So is a task that was revised while it ran.
--   event_tasks: what happened to which task (events), unless it was lost.
-- Another transaction may keep one of the rows locked for long, for example one that a job left open after complete().
-- Then this call fails after two seconds, and the settler repeats it without that task.
--   due_s: in how many seconds the first task is due that waited for one of these to end; null: none does.
create function everpoll.settle(me bigint, done_ids bigint[], done_sequence int,
    ids bigint[], sequences int[], states text[], results text[], notes text[],
    again_ids bigint[], again_sequences int[], delays_s float8[], refunds int[], memories text[], again_notes text[],
    event_tasks bigint[] default null, event_seqs bigint[] default null, event_bodies text[] default null,
    out lost bigint[], out due_s float8)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan set lock_timeout = '2s'
as $$
declare
    touched bigint[]; moved bigint[]; moves int; me_label text; away record; link_ids bigint[];
    link_names text[]; link_states text[]; link_results text[]; links_to bigint[];
begin
    select w.label into me_label from everpoll.workers w where w.incarnation = me;
    if done_ids is not null then
        with gone as (
            delete from everpoll.tasks t
            where t.id = any(done_ids) and t.owner = me and t.sequence = done_sequence and t.then_id is null
            returning t.*)
        insert into everpoll.history (id, {kept}, attempt, rescues, cancel_requested, state, worker, memory, trail,
            error_type)
        select id, {kept}, attempt, rescues, cancel_requested, 'done', me_label, memory, trail, error_type from gone;
        get diagnostics moves = row_count;
        if moves < cardinality(done_ids) then   -- tasks that others wait for: report their ends to those
            with gone as (
                delete from everpoll.tasks t
                where t.id = any(done_ids) and t.owner = me and t.sequence = done_sequence returning t.*),
            ended as (
                insert into everpoll.history (id, {kept}, attempt, rescues, cancel_requested, state, worker, memory,
                    trail, error_type)
                select id, {kept}, attempt, rescues, cancel_requested, 'done', me_label, memory, trail, error_type
                  from gone)
            select moves + count(*), array_agg(g.id) filter (where not g.has_told),
                   array_agg(g.name) filter (where not g.has_told), array_agg(g.then_id) filter (where not g.has_told)
              into moves, link_ids, link_names, links_to from gone g;
            if links_to is not null then
                link_states := array_fill('done'::text, array[cardinality(links_to)]);
                link_results := array_fill(null::text, array[cardinality(links_to)]);
            end if;
        end if;
        if moves < cardinality(done_ids) then   -- rare: a task that this transaction did not move to history was lost
            lost := array(select d from unnest(done_ids) d where not exists (
                select from everpoll.history h
                where h.id = d and h.sequence = done_sequence and h.owner = me and h.ended_at = now()));
        end if;
    end if;
    if ids is not null then
        select * into away from everpoll.put_away(me, ids, sequences, states, results,
            array_fill(me_label, array[cardinality(ids)]), array_fill(me_label, array[cardinality(ids)]), notes,
            null, null, null, false);
        touched := away.moved;
        if away.links_to is not null then
            link_ids := link_ids || away.link_ids;
            link_names := link_names || away.link_names;
            link_states := link_states || away.link_states;
            link_results := link_results || away.link_results;
            links_to := links_to || away.links_to;
        end if;
        if cardinality(touched) is distinct from cardinality(ids) then
            lost := coalesce(lost, '{}') || array(select unnest(ids) except select unnest(touched));
        end if;
    end if;
    if again_ids is not null then
        with again as (
            update everpoll.tasks t set
                owner = null, is_leased = false, worker = me_label,
                attempt = t.attempt - u.refund,
                is_revised = false,
                due_at = case when t.is_revised or (t.cancel_requested and t.due_at > t.started_at) then clock_timestamp()
                              when u.delay_s is null then t.due_at
                              else clock_timestamp() + u.delay_s * interval '1 second' end,
                line = case when coalesce(u.delay_s, 0) <= 0 or t.is_revised
                                 or (t.cancel_requested and t.due_at > t.started_at)
                                 then case when t.limit_key is null then 0 else 3 end
                            else 1 end,
                memory = coalesce(u.memory, t.memory),
                rescues = case when u.memory is null then t.rescues else 0 end,
                trail = everpoll.remember(t.trail, me_label, u.note),
                error_type = coalesce(everpoll.error_class(u.note), t.error_type)
            from unnest(again_ids, again_sequences, delays_s, refunds, memories, again_notes)
                u(id, sequence, delay_s, refund, memory, note)
            where t.id = any(again_ids) and t.id = u.id and t.sequence = u.sequence and t.owner = me
              and (not t.cancel_requested or t.cancels_itself)
            returning t.id)
        select array_agg(a.id) into touched from again a;
        if cardinality(touched) is distinct from cardinality(again_ids) then
            with left_over as (
                select u.* from unnest(again_ids, again_sequences, refunds, memories, again_notes)
                    u(id, sequence, refund, memory, note)
                where touched is null or u.id <> all(touched))
            select p.* into away from (
                select array_agg(l.id) as ids, array_agg(l.sequence) as sequences, array_agg('canceled'::text) as states,
                       array_agg(me_label) as labels, array_agg(l.note) as notes, array_agg(l.refund) as refunds,
                       array_agg(l.memory) as memories from left_over l) a
             cross join lateral everpoll.put_away(me, a.ids, a.sequences, a.states, null, a.labels, a.labels, a.notes,
                       a.refunds, a.memories, null, true) p;
            moved := away.moved;
            if away.links_to is not null then
                link_ids := link_ids || away.link_ids;
                link_names := link_names || away.link_names;
                link_states := link_states || away.link_states;
                link_results := link_results || away.link_results;
                links_to := links_to || away.links_to;
            end if;
            if moved is not null then
                perform everpoll.append_events(moved, array_fill(-1::bigint, array[cardinality(moved)]),
                    array_fill('{canceled meanwhile}'::text, array[cardinality(moved)]), null);
            end if;
            lost := coalesce(lost, '{}') || array(
                select unnest(again_ids) except select unnest(touched) except select unnest(moved));
        end if;
    end if;
    if event_tasks is not null then
        perform everpoll.append_events(event_tasks, event_seqs, event_bodies, lost);
    end if;
    -- Last, so that waiting tasks are locked as briefly as possible; in one call, so that they are locked in order.
    if links_to is not null then
        due_s := everpoll.report_ends(link_ids, link_names, link_states, link_results, links_to);
    end if;
end $$;
