-- The rows of one service from which the figures of a range are computed, in one snapshot. kind and place: 1 a day, 2
-- an hour (figures, and the histogram), 3 the minutes of an hour (packed), 4 a look that is not rolled up (span_ms,
-- status, latency_us), 5 the horizon, 6 the last looks that are rolled up (packed). Looks are those of all time: one
-- outside the range may cut short one inside. A day and an hour is a seek each: a lateral join with a limit, here and
-- in the other files, keeps the planner from walking through a whole table that its statistics take for a small one.
create function everpoll.health_found(its_name text, first_day int, last_day int, its_hours int[], its_minutes int[])
returns table (kind int, place bigint, figures bigint[], packed bytea)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare its_id int; its_last bytea;
begin
    select s.id, s.recent into its_id, its_last from everpoll.health_services s where s.name = its_name;
    if not found then return; end if;
    return query
    select 1, d.day::bigint, array[{d.figures}], d.histogram
    from everpoll.health_days d where d.service = its_id and d.day >= first_day and d.day <= last_day
    union all select 2, h.hour::bigint, array[{h.figures}], h.histogram
    from unnest(its_hours) g(hour)
        cross join lateral (
            select * from everpoll.health_hours k where k.hour = g.hour and k.service = its_id limit 1) h
    union all select 3, m.hour::bigint, null, m.minutes
    from unnest(its_minutes) g(hour)
        cross join lateral (
            select * from everpoll.health_minutes k where k.hour = g.hour and k.service = its_id limit 1) m
    union all select 4, l.at_ms, array[l.span_ms, l.status, l.latency_us]::bigint[], null
    from everpoll.health_looks l where l.service = its_id
    union all select 5, 0, array[z.looks, z.minutes, z.hours, z.errors_ms], null from everpoll.health_horizon z
    union all select 6, 0, null, its_last where its_last is not null;
end $$;

-- The sums of an availability since a day, in some hours before it, and of what is not rolled up: with its first
-- instant, and the last looks that are rolled up, which it may cut short. Each hour of a service is a seek.
create function everpoll.health_availability_of_some(ids int[], first_day int, first_hour int, end_hour int,
    from_ms bigint)
returns table (name text, figures bigint[], first_ms bigint, packed_ms bigint, recent bytea)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select s.name, p.sums, p.first_ms, s.packed_ms, case when p.first_ms is not null then s.recent end
    from unnest(ids) i(id)
        cross join lateral (select * from everpoll.health_services k where k.id = i.id limit 1) s
        cross join lateral (
            select array[{sums of d}] as sums, null::bigint as first_ms
            from everpoll.health_days d where d.service = i.id and d.day >= first_day
            union all select array[{sums of h}], null
            from generate_series(first_hour, end_hour - 1) g(hour) cross join lateral (
                select * from everpoll.health_hours k where k.hour = g.hour and k.service = i.id limit 1) h
            union all select array[{sums of looks}], min(l.at_ms)
            from ({cut looks} where k.service = i.id and k.at_ms >= from_ms) l) p
    where p.sums[1] is not null;
end $$;

-- The same for services by name. For more than a quarter of all services, reads the tables as a whole.
create function everpoll.health_availability(names text[], first_day int, first_hour int, end_hour int, from_ms bigint)
returns table (name text, figures bigint[], first_ms bigint, packed_ms bigint, recent bytea)
language plpgsql stable
set enable_mergejoin = off set jit = off
as $$
declare ids int[];
begin
    select array_agg(s.id) into ids from unnest(names) n(name) join everpoll.health_services s on s.name = n.name;
    if cardinality(ids) * 4 <= (select max(s.id) from everpoll.health_services s) then
        return query select * from everpoll.health_availability_of_some(ids, first_day, first_hour, end_hour, from_ms);
        return;
    end if;
    return query
    with parts as (
        select d.service, array[{sums of d}] as sums, null::bigint as first_ms from everpoll.health_days d
        where d.day >= first_day group by d.service
        union all select h.service, array[{sums of h}], null from everpoll.health_hours h
        where h.hour >= first_hour and h.hour < end_hour group by h.service
        union all select l.service, array[{sums of looks}], min(l.at_ms)
        from ({cut looks} where k.at_ms >= from_ms) l group by l.service)
    select s.name, p.sums, p.first_ms, s.packed_ms, case when p.first_ms is not null then s.recent end
    from parts p join everpoll.health_services s on s.id = p.service
    where s.id = any(ids);
end $$;
