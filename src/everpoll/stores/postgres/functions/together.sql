-- Enqueues a whole batch, or nothing if a task with on_conflict="reject" finds its key taken: then it returns the ids of
-- the tasks that have the keys, and 0 for the others.
create function everpoll.enqueue_together(queues text[], names text[], ranks int[], argss text[], delays_s float8[],
    timeouts_s float8[], kinds text[], versions int[], memories text[], keys text[], onces boolean[],
    cancel_themselves boolean[], are_indexed boolean[],
    limit_keys text[], limits_running int[], limits_starts int[], limits_per_s float8[],
    replaces boolean[], windows_s float8[], event_places int[], event_seqs bigint[], event_bodies text[],
    rejects boolean[], out ids bigint[], out are_new boolean[])
language plpgsql volatile
as $$
begin
    select e.ids, e.are_new into ids, are_new
      from everpoll.enqueue_special(queues, names, ranks, argss, delays_s, timeouts_s, kinds, versions, memories, keys,
               onces, cancel_themselves, are_indexed, limit_keys, limits_running, limits_starts, limits_per_s, replaces,
               windows_s, event_places, event_seqs, event_bodies) e;
    if exists (select from unnest(are_new, rejects) u(is_new, rejects) where u.rejects and not u.is_new) then
        raise exception 'a key is taken' using errcode = 'EV002';
    end if;
exception when sqlstate 'EV002' then
    -- The exception undoes the inserts; the variables keep their values.
    select array_agg(case when u.rejects and not u.is_new then u.id else 0 end order by u.place),
           array_agg(false order by u.place)
      into ids, are_new from unnest(ids, are_new, rejects) with ordinality u(id, is_new, rejects, place);
end $$;
