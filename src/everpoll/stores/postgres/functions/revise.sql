-- Gives a live task new arguments, or only makes it due: at once, or, while it runs, as soon as it settles. Returns its
-- id; null: there is no such live task, its arguments are not the expected ones, or it runs and the caller wants a queued
-- one. Equal arguments change nothing, unless hurry. The task is the one of its_id, or of its_kind and its_key.
create function everpoll.revise(its_kind text, its_key text, new_args text, hurry boolean,
    expected_args text, its_id bigint, only_queued boolean, keeps_due boolean, note text,
    out task_id bigint, out is_changed boolean, out is_running boolean)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare task everpoll.tasks;
begin
    is_changed := false;
    if its_id is not null then
        select t.* into task from everpoll.tasks t where t.id = its_id for update;
    else
        select t.* into task from everpoll.tasks t where t.key = its_key and t.kind = its_kind for update;
    end if;
    if task.id is null or (expected_args is not null and task.args <> expected_args)
       or (only_queued and task.is_leased) then
        return;
    end if;
    task_id := task.id;
    is_running := task.is_leased and not keeps_due;
    is_changed := hurry or coalesce(new_args <> task.args, false);
    if not is_changed then return; end if;
    update everpoll.tasks t set
        args = coalesce(new_args, t.args), trail = everpoll.remember(t.trail, '', note),
        is_revised = case when keeps_due then t.is_revised else t.is_leased end,
        -- A task that waits for others still waits for them, but is due without its delay once they have ended.
        due_at = case when t.is_leased or keeps_due then t.due_at when t.line = 5 then t.created_at else least(clock_timestamp(), t.due_at) end,
        line = case when t.line = 1 and not keeps_due and not t.is_leased
                    then case when t.limit_key is null then 0 else 3 end else t.line end
    where t.id = task.id;
    if note is not null then
        perform everpoll.log_events(array[task.id], array[task.kind], array[task.name], array[task.key], array[note]);
    end if;
    -- A running task is due again when it settles, whatever its outcome; wake its worker then, as after a cancel.
    if not keeps_due then perform pg_notify('everpoll', case when task.is_leased then 'c' else '' end); end if;
end $$;
