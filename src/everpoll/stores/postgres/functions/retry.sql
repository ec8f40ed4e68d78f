-- An ended task is due again under its own id, its sequence going on. False: not ended, or its key has a live task.
create function everpoll.retry(task_id bigint, note text) returns boolean
language plpgsql volatile as $$
begin
    with gone as (delete from everpoll.history h where h.id = task_id returning h.*)
    insert into everpoll.tasks (id, created_at, timeout_s, sequence, rank, version, cancels_itself, indexed, kind, queue,
        name, key, args, memory, trail)
    select g.id, g.created_at, g.timeout_s, g.sequence, g.rank, g.version, g.cancels_itself, g.indexed, g.kind, g.queue,
        g.name, g.key, g.args, g.memory, everpoll.remember(g.trail, '', note) from gone g;
    return found;
exception when unique_violation then
    return false;
end $$;

