-- Daily partitions of history, made ahead of their day. history_rest (the default partition) takes what comes without
-- one. Attaching and dropping want a strong lock for a moment: a long read of history makes them give up after 200 ms,
-- instead of queueing every settlement behind them, and the next call tries again. Nothing happens while the partition
-- of the day `due` days ahead is there; then all up to `ahead` days are made, by one caller at a time (a lock of the
-- transaction, which works behind a pooler). A role that may not make them leaves that to one that may.
create function everpoll.make_partitions(due int, ahead int, out made int)
language plpgsql volatile
set lock_timeout = '200ms' set timezone = 'UTC'
as $$
declare day date; part text;
begin
    made := 0;
    if to_regclass('everpoll.history_' || to_char(current_date + due, 'YYYYMMDD')) is not null then return; end if;
    if not pg_try_advisory_xact_lock(hashtext('everpoll.history')) then return; end if;
    for day in select generate_series(current_date, current_date + ahead, interval '1 day')::date loop
        part := 'history_' || to_char(day, 'YYYYMMDD');
        if to_regclass('everpoll.' || part) is null then
            begin
                execute format('create table everpoll.%I (like everpoll.history including defaults)', part);
                execute format('alter table everpoll.history attach partition everpoll.%I for values from (%L) to (%L)',
                               part, day::timestamptz, (day + 1)::timestamptz);
                made := made + 1;
            exception
                -- check_violation: history_rest holds rows of that day already, and keeps taking them.
                when lock_not_available or check_violation or duplicate_table or insufficient_privilege then null;
            end;
        end if;
    end loop;
end $$;

-- Drops the partitions of all days that ended before the instant.
create function everpoll.drop_partitions(before timestamptz, out dropped int)
language plpgsql volatile
set lock_timeout = '200ms' set timezone = 'UTC'
as $$
declare part record;
begin
    dropped := 0;
    for part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'everpoll.history'::regclass and c.relname ~ '^history_\d{8}$'
          and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamptz <= before loop
        begin
            execute format('drop table everpoll.%I', part.relname);
            dropped := dropped + 1;
        exception when lock_not_available then null;
        end;
    end loop;
end $$;

-- Deletes up to `most` rows that ended before the instant: from the default partition, and where days are too coarse
-- (is_fine) from the others as well.
create function everpoll.delete_history(before timestamptz, is_fine boolean, most int, out deleted int)
language plpgsql volatile
set timezone = 'UTC'
as $$
declare part record; gone int;
begin
    deleted := 0;
    for part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'everpoll.history'::regclass and (c.relname = 'history_rest' or is_fine) loop
        execute format('delete from everpoll.%I where ctid = any(array(
            select ctid from everpoll.%I where ended_at < $1 limit $2))', part.relname, part.relname)
            using before, most - deleted;
        get diagnostics gone = row_count;
        deleted := deleted + gone;
        exit when deleted >= most;
    end loop;
end $$;
