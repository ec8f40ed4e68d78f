-- The dependencies that a service reports or reported earlier, by name. Each row also has the newest latencies: those
-- that are rolled up, and those of the last look that is not.
create function everpoll.health_dependencies_of(its_name text)
returns table (rolled_ms bigint, rolled bytea, open_ms bigint, open bytea, canonical text,
    name text, at_ms bigint, changed_ms bigint, seen_ms bigint, latency_us int, vanished boolean, skipped boolean,
    status text, type text, impact text, description text, contact text, check_details text, error text,
    error_message text)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select s.latencies_ms, s.latencies, o.at_ms, o.latencies, a.canonical, {d.dependency}
    from everpoll.health_services s
        cross join lateral (
            select * from everpoll.health_dependencies k where k.service = s.id order by k.name offset 0) d
        left join lateral (select * from everpoll.health_aliases k where k.alias = d.name limit 1) a on true
        left join lateral (
            select l.at_ms, l.latencies from everpoll.health_looks l
            where l.service = s.id and l.latencies is not null order by l.at_ms desc limit 1) o on true
    where s.name = its_name order by d.name;
end $$;

-- The dependencies of all services, ordered by service and name, after a service and a name.
create function everpoll.health_edges(after_service text, after_name text, most int)
returns table (service text, name text, canonical text, status text, vanished boolean)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select s.name, d.name, coalesce(a.canonical, d.name), d.status, d.vanished
    from everpoll.health_services s
        cross join lateral (
            select * from everpoll.health_dependencies k
            where k.service = s.id and (s.name > after_service or k.name > after_name) order by k.name limit most) d
        left join lateral (select * from everpoll.health_aliases k where k.alias = d.name limit 1) a on true
    where s.name >= after_service
    order by s.name, d.name limit most;
end $$;

-- The error history of a dependency, newest first.
create function everpoll.health_errors_of(its_name text, its_dependency text, most int)
returns table (at_ms bigint, error text, error_message text)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select e.at_ms, e.error, e.error_message from everpoll.health_errors e
    where e.service = (select s.id from everpoll.health_services s where s.name = its_name)
        and e.dependency = its_dependency
    order by e.at_ms desc limit most;
end $$;
