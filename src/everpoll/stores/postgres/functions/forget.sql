-- Deletes an ended task from history; its events stay. The note becomes its last event.
--   outcome: deleted, live (it has not ended), unknown
create function everpoll.forget(task_id bigint, note text, out outcome text)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare ended everpoll.history;
begin
    delete from everpoll.history h where h.id = task_id returning h.* into ended;
    if not found then
        select case when exists (select from everpoll.tasks t where t.id = task_id) then 'live' else 'unknown' end
          into outcome;
        return;
    end if;
    delete from everpoll.losses l where l.task_id = ended.id;
    perform everpoll.log_events(array[ended.id], array[ended.kind], array[ended.name], array[ended.key], array[note]);
    outcome := 'deleted';
end $$;
