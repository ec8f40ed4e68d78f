-- Returns and locks services that have looks before an instant, in the order of their ids after `after`. Skips services
-- that another transaction has locked.
create function everpoll.health_pick(until_ms bigint, after int, most int)
returns table (id int, recent bytea, latencies bytea, latencies_ms bigint, packed_ms bigint)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select s.id, s.recent, s.latencies, s.latencies_ms, s.packed_ms from everpoll.health_services s
    where s.id > after
      and exists (select from everpoll.health_looks l where l.service = s.id and l.at_ms < until_ms)
    order by s.id limit most for no key update of s skip locked;
end $$;

-- The looks of services before an instant, the oldest of each first.
create function everpoll.health_open_looks(its_services int[], until_ms bigint, most int)
returns setof everpoll.health_looks
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select l.* from unnest(its_services) with ordinality s(id, place)
        cross join lateral (
            select k.* from everpoll.health_looks k where k.service = s.id and k.at_ms < until_ms order by k.at_ms) l
    order by s.place, l.at_ms limit most;
end $$;

-- The rolled-up rows of some services at some hours and days. kind: 1 packed looks, 2 minutes, 3 an hour, 4 a day.
create function everpoll.health_buckets(hours int[], hours_of int[], days int[], days_of int[])
returns table (kind int, service int, place int, size int, figures bigint[], packed bytea, latencies bytea)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select 1, p.service, p.hour, p.size, null::bigint[], p.looks, p.latencies
    from unnest(hours, hours_of) n(hour, service) cross join lateral (
        select * from everpoll.health_packed k where k.hour = n.hour and k.service = n.service limit 1) p
    union all select 2, m.service, m.hour, 0, null, m.minutes, null
    from unnest(hours, hours_of) n(hour, service) cross join lateral (
        select * from everpoll.health_minutes k where k.hour = n.hour and k.service = n.service limit 1) m
    union all select 3, h.service, h.hour, 0, array[{h.figures}], h.histogram, null
    from unnest(hours, hours_of) n(hour, service) cross join lateral (
        select * from everpoll.health_hours k where k.hour = n.hour and k.service = n.service limit 1) h
    union all select 4, d.service, d.day, 0, array[{d.figures}], d.histogram, null
    from unnest(days, days_of) n(day, service) cross join lateral (
        select * from everpoll.health_days k where k.day = n.day and k.service = n.service limit 1) d;
end $$;

-- Deletes looks that are rolled up.
create function everpoll.health_drop_looks(its_services int[], ats bigint[])
returns void
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    delete from everpoll.health_looks where ctid = any(array(
        select l.place from unnest(its_services, ats) n(service, at_ms) cross join lateral (
            select k.ctid as place from everpoll.health_looks k
            where k.service = n.service and k.at_ms = n.at_ms limit 1) l));
end $$;

-- Deletes up to `most` rows of a table for which `its_column` is below a value, the lowest first, of those that
-- `filter` lets through; how many.
create function everpoll.health_prune(its_table text, its_column text, filter text, below bigint, most int,
    out deleted int)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    execute format('delete from everpoll.%I where ctid = any(array(
        select ctid from everpoll.%I where %s and %I < $1 order by %I limit $2))',
        its_table, its_table, filter, its_column, its_column) using below, most;
    get diagnostics deleted = row_count;
end $$;

-- Deletes the rows of a service in a table, at the places from `first` to `last` of `its_column`.
create function everpoll.health_forget(its_service int, its_table text, its_column text, first int, last int)
returns void
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
as $$
begin
    execute format('delete from everpoll.%I where ctid = any(array(
        select l.row from generate_series($2, $3) g(place) cross join lateral (
            select k.ctid as row from everpoll.%I k where k.%I = g.place and k.service = $1 limit 1) l))',
        its_table, its_table, its_column) using its_service, first, last;
end $$;
