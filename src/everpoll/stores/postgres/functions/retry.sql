-- Whether an ended task waits for the end of others, as the callback of a group does.
create function everpoll.waits_for_all(task_id bigint) returns boolean
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    return exists (select from everpoll.history h where h.id = task_id and h.takes = 'end');
end $$;

-- Makes an ended task due again under its own id; its sequence goes on. A task that waits for others to end waits again
-- for those that are live; they report their end to it again.
--   outcome: queued, live (it has not ended), key_taken (holder: the live task that has its key), unknown
create function everpoll.retry(task_id bigint, note text, out outcome text, out holder bigint)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare ended everpoll.history; inserted bigint; members int;
begin
    loop
        -- Each statement has a snapshot of its own, so it finds a task where another transaction has moved it meanwhile.
        delete from everpoll.history h where h.id = task_id returning h.* into ended;
        if not found then
            select case when exists (select from everpoll.tasks t where t.id = task_id) then 'live' else 'unknown' end
              into outcome;
            return;
        end if;
        insert into everpoll.tasks (id, created_at, timeout_s, sequence, rank, version, cancels_itself, indexed, kind,
            queue, name, key, args, memory, trail, limit_key, limit_running, limit_starts, limit_per_s, line,
            then_id, takes, has_told)
        values (ended.id, ended.created_at, ended.timeout_s, ended.sequence, ended.rank, ended.version,
            ended.cancels_itself, ended.indexed, ended.kind, ended.queue, ended.name, ended.key,
            -- A task that was canceled before it got the result of the previous task gets it now, if there is one.
            case when ended.takes = 'result' and not starts_with(ended.args, '{"input":')
                 then coalesce((select everpoll.with_input(ended.args, b.result) from everpoll.history b
                                where b.then_id = ended.id and b.state = 'done' limit 1), ended.args)
                 else ended.args end,
            ended.memory, everpoll.remember(ended.trail, '', note), ended.limit_key, ended.limit_running, ended.limit_starts,
            ended.limit_per_s, case when ended.limit_key is null then 0 else 3 end,
            ended.then_id, ended.takes, ended.then_id is not null)
        on conflict (key, kind) where key is not null do nothing returning tasks.id into inserted;
        if inserted is not null then
            if ended.takes = 'end' then
                update everpoll.tasks t set has_told = false where t.then_id = task_id;
                get diagnostics members = row_count;
                if members > 0 then
                    update everpoll.tasks t set blockers = members, line = 5, due_at = t.created_at where t.id = task_id;
                end if;
            end if;
            perform everpoll.log_events(array[ended.id], array[ended.kind], array[ended.name], array[ended.key],
                array[note]);
            outcome := 'queued';
            return;
        end if;
        insert into everpoll.history select (ended).*;
        select t.id into holder from everpoll.tasks t where t.key = ended.key and t.kind = ended.kind;
        if holder is not null then
            outcome := 'key_taken';
            return;
        end if;
        -- The task that had the key has ended between the two statements.
    end loop;
end $$;
