-- The looks of a range: those that are not rolled up, newest first, and the packed hours, newest first, each until
-- there are `most`. An hour that the range ends in may have none of them.
create function everpoll.health_looks_between(its_name text, from_ms bigint, to_ms bigint, most int)
returns table (hour int, at_ms bigint, span_ms int, status smallint, latency_us int, http_status smallint, error text,
    looks bytea, latencies bytea)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare its_id int; first_hour int; last_hour int;
begin
    select s.id into its_id from everpoll.health_services s where s.name = its_name;
    if not found then return; end if;
    -- Without any packed hour both are null, and so is the series.
    select greatest(from_ms / 3600000, a.hour) into first_hour from everpoll.health_packed a order by a.hour limit 1;
    select least((to_ms - 1) / 3600000, z.hour) into last_hour
    from everpoll.health_packed z order by z.hour desc limit 1;
    return query
    (select null::int, l.at_ms, l.span_ms, l.status, l.latency_us, l.http_status, l.error, null::bytea, l.latencies
     from everpoll.health_looks l where l.service = its_id and l.at_ms >= from_ms and l.at_ms < to_ms
     order by l.at_ms desc limit most)
    union all
    (select w.hour, null, null, null, null, null, null, w.looks, w.latencies from (
        select p.*, sum(p.size) filter (where (p.hour + 1) * bigint '3600000' <= to_ms)
                over (order by p.hour desc rows between unbounded preceding and 1 preceding) as newer
        from generate_series(first_hour, last_hour) g(hour)
            cross join lateral (
                select * from everpoll.health_packed k where k.hour = g.hour and k.service = its_id limit 1) p) w
     where coalesce(w.newer, 0) < most order by w.hour desc);
end $$;

-- The last looks at each of many services: those that are not rolled up, newest first, and the packed ones.
create function everpoll.health_last_looks(names text[], most int)
returns table (name text, recent bytea, packed_ms bigint, ats bigint[], statuses smallint[], latencies_us int[])
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select s.name, s.recent, s.packed_ms, l.ats, l.statuses, l.latencies_us
    from unnest(names) n(name)
        cross join lateral (select * from everpoll.health_services k where k.name = n.name limit 1) s
        cross join lateral (
            select array_agg(o.at_ms) as ats, array_agg(o.status) as statuses, array_agg(o.latency_us) as latencies_us
            from (select k.at_ms, k.status, k.latency_us from everpoll.health_looks k
                  where k.service = s.id order by k.at_ms desc limit most) o) l;
end $$;
