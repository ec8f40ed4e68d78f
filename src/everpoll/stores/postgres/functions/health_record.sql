-- Records a batch of looks. names: the services. places[i]: which of the names, counted from 1, look i is about. Looks that
-- are recorded already are left out.
--   ids: the services. late: which looks, counted from 1, are not newer than the last roll-up of their service, so that the
--   rolled-up rows may contain them. If there are any, the call writes nothing, unless the caller has checked them
--   (is_checked).
-- If the service is rolled up or forgotten meanwhile, the call finds that at its end and raises 40001, which undoes
-- everything: the roll-up may have removed a look that the insert had to find.
create function everpoll.record_looks(names text[], places int[], ats bigint[], spans int[], statuses int[],
    latencies_us int[], http_statuses int[], errors text[], packed_latencies bytea[], is_checked boolean,
    its_dependencies json, its_errors json, out ids int[], out late int[])
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare packed bigint[]; packed_now bigint[];
begin
    -- A service is forgotten by one transaction that waits for those that record: none writes for a service that is gone.
    perform pg_advisory_xact_lock_shared(hashtext('everpoll'), hashtext('everpoll.health'));
    for attempt in 1..3 loop
        select array_agg(s.id order by n.place), array_agg(s.packed_ms order by n.place) into ids, packed
        from unnest(names) with ordinality n(name, place) left join lateral (
            select k.id, k.packed_ms from everpoll.health_services k where k.name = n.name limit 1) s on true;
        exit when array_position(ids, null) is null;
        if attempt = 3 then raise exception 'a service was forgotten meanwhile' using errcode = '40001'; end if;
        insert into everpoll.health_services (name)
        select n.name from unnest(names) n(name) order by n.name on conflict (name) do nothing;
    end loop;
    if not is_checked then
        select array_agg(u.number) into late from unnest(places, ats) with ordinality u(place, at_ms, number)
        where u.at_ms <= packed[u.place];
        if late is not null then return; end if;
    end if;
    insert into everpoll.health_looks
        (service, at_ms, span_ms, status, latency_us, http_status, error, latencies)
    select ids[u.place], u.at_ms, u.span_ms, u.status, u.latency_us, u.http_status, u.error, u.latencies
    from unnest(places, ats, spans, statuses, latencies_us, http_statuses, errors, packed_latencies)
        u(place, at_ms, span_ms, status, latency_us, http_status, error, latencies)
    order by 1, 2 on conflict (service, at_ms) do nothing;
    if its_dependencies is not null then
        insert into everpoll.health_dependencies as known
            (service, {dependency})
        select ids[d.place], {d.dependency}
        from json_to_recordset(its_dependencies) d(place int, name text, at_ms bigint, changed_ms bigint,
            seen_ms bigint, latency_us int, vanished boolean, skipped boolean, status text, type text, impact text,
            description text, contact text, check_details text, error text, error_message text)
        where d.at_ms >= coalesce((select z.errors_ms from everpoll.health_horizon z), 0)
        order by 1, d.name
        on conflict (service, name) do update set {new dependency} where excluded.at_ms > known.at_ms;
    end if;
    if its_errors is not null then
        insert into everpoll.health_errors (service, dependency, at_ms, error, error_message)
        select ids[e.place], e.dependency, e.at_ms, e.error, e.error_message
        from json_to_recordset(its_errors) e(place int, dependency text, at_ms bigint, error text, error_message text)
        where e.at_ms >= coalesce((select z.errors_ms from everpoll.health_horizon z), 0)
        order by 1, 2, 3 on conflict (service, dependency, at_ms) do nothing;
    end if;
    select array_agg(s.packed_ms order by n.place) into packed_now
    from unnest(ids) with ordinality n(id, place) left join lateral (
        select k.packed_ms from everpoll.health_services k where k.id = n.id limit 1) s on true;
    if packed_now is distinct from packed then
        raise exception 'a service was rolled up or forgotten meanwhile' using errcode = '40001';
    end if;
end $$;
