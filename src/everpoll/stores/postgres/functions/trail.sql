-- A decision as the trail keeps it: the caller's JSON object with `at` and `by` put before it. Of two equal names in
-- an object the last one counts, so what the caller says wins.
create function everpoll.entry(by text, note text) returns text
language sql stable
return '{"at":' || extract(epoch from clock_timestamp()) || ',"by":' || to_json(coalesce(by, ''))
    || case when ltrim(note) ~ '^\{\s*\}' then '}' else ',' || substr(ltrim(note), 2) end;

-- The trail with one more entry; the oldest go first. No note leaves it as it is, and costs nothing.
create function everpoll.remember(trail text[], by text, note text) returns text[]
language sql stable
return case when note is null then trail
            when cardinality(trail) >= 100 then trail[cardinality(trail) - 98:] || everpoll.entry(by, note)
            else coalesce(trail, '{}') || everpoll.entry(by, note) end;
