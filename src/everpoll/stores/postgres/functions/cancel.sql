-- Ends a queued task as canceled; requests that a running one cancels, and notifies its worker. Returns the state after
-- that; null: unknown. For a task that cancels itself, records the request and makes it due now. If it runs, its due
-- time is then after its start, so its settlement knows that the run did not see the request.
create function everpoll.cancel(task_id bigint, note text, out state text, out is_changed boolean)
language plpgsql volatile as $$
declare held boolean; is_asked boolean; its_sequence int; its_kind text; its_name text; its_key text;
begin
    is_changed := false;
    select t.is_leased, t.cancels_itself, t.sequence, t.kind, t.name, t.key
      into held, is_asked, its_sequence, its_kind, its_name, its_key
      from everpoll.tasks t where t.id = task_id for update;
    if not found then
        -- A statement of its own after the lock has a new snapshot: it sees what was settled meanwhile.
        select h.state into state from everpoll.history h where h.id = task_id;
        return;
    end if;
    is_changed := true;
    state := case when held then 'running' when is_asked then 'queued' else 'canceled' end;
    perform everpoll.log_events(array[task_id], array[its_kind], array[its_name], array[its_key],
        array['{"state":"' || state || '"' || everpoll.further(note)]);
    if is_asked then
        update everpoll.tasks t
        set cancel_requested = true, trail = everpoll.remember(t.trail, '', note),
            line = case when t.line = 1 and not t.is_leased then case when t.limit_key is null then 0 else 3 end
                        else t.line end,
            due_at = case when t.is_leased then greatest(clock_timestamp(), t.started_at + interval '1 microsecond')
                          else least(clock_timestamp(), t.due_at) end
        where t.id = task_id;
        perform pg_notify('everpoll', 'c');
        return;
    end if;
    if held then
        update everpoll.tasks t set cancel_requested = true, trail = everpoll.remember(t.trail, '', note)
        where t.id = task_id;
        perform pg_notify('everpoll', 'c');
        return;
    end if;
    perform everpoll.move(null, array[task_id], array[its_sequence], array['canceled'::text], null, null, array[''::text],
                          array[note], null, null, null, true);
end $$;

