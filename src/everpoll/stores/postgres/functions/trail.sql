-- The fields of a JSON object, to stand after others: with the comma before them and the brace after them.
create function everpoll.further(note text) returns text
language sql immutable
return case when ltrim(note) ~ '^\{\s*\}' then '}' else ',' || substr(ltrim(note), 2) end;

-- An entry of the trail: the caller's JSON object with `at` and `by` put before it. Of two equal names in an object the
-- last one counts, so the caller's values win.
create function everpoll.entry(by text, note text) returns text
language sql stable
return '{"at":' || extract(epoch from clock_timestamp()) || ',"by":' || to_json(coalesce(by, ''))
    || everpoll.further(note);

-- The trail with one more entry, without the oldest ones if it is too long. Without a note it is returned unchanged.
create function everpoll.remember(trail text[], by text, note text) returns text[]
language sql stable
return case when note is null then trail
            when cardinality(trail) >= 100 then trail[cardinality(trail) - 98:] || everpoll.entry(by, note)
            else coalesce(trail, '{}') || everpoll.entry(by, note) end;

-- The class of the error in a note; null: it has none. The same rule as in `stores/task_search.py`.
create function everpoll.error_class(note text) returns text
language sql immutable
return substring(note from '"type":\s*"([A-Za-z_][A-Za-z0-9_.]{0,199})"');
