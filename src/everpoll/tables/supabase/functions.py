"""The function that gives guard="skip_locked" over HTTP: made by whoever owns the database, found by us.

Its name carries a digest of the mapping: another mapping needs another function, and never calls this one.
It runs with its owner's rights and a fixed search path, and only the service role may call it.
"""

# ruff: noqa: S608 - names and words are quoted

import hashlib
import itertools
import json
from collections.abc import Sequence

from everpoll.tables.mapping import Table

ROLES = ("anon", "authenticated")
"""Supabase lets these call every new function of the schema `public`, whatever is revoked from PUBLIC."""
SERVICE_ROLE = "service_role"
CLOCK = "everpoll_now"
"""Each answer begins with the database's time; the rows come after it."""
PAIRS = 40
"""Columns of one `jsonb_build_object`: Postgres takes a hundred arguments."""


def identifier(name: str) -> str:
    """Quoted."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text, whatever characters it has."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if "\\" not in text else "E'" + quoted.replace("\\", "\\\\") + "'"


def schema_of(table: Table) -> str:
    """Supabase serves `public` where nobody says otherwise."""
    return table.parts[0] if len(table.parts) > 1 else "public"


def qualified(table: Table) -> str:
    """With its schema."""
    return f"{identifier(schema_of(table))}.{identifier(table.parts[-1])}"


def claim_function(table: Table, read: Sequence[str]) -> str:
    """The name of the function for this mapping."""
    used = [table.name, table.used, table.queued, table.running, list(read)]
    digest = hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()
    return f"everpoll_claim_{digest[:12]}"


def function_ddl(table: Table, read: Sequence[str]) -> list[str]:
    """To be run once, in Supabase's SQL editor for instance; may be run again."""
    name = f"{identifier(schema_of(table))}.{claim_function(table, read)}"
    signature = f"{name}(text, timestamptz, integer)"
    made = (
        f"create or replace function {name}(worker text, started_at timestamptz, most integer) returns setof jsonb\n"
        f"language sql volatile security definer set search_path = pg_catalog, pg_temp as {_body(_claim(table, read))}"
    )
    return [
        made,
        f"revoke execute on function {signature} from public",
        _for_roles(ROLES, f"revoke execute on function {signature} from"),
        _for_roles((SERVICE_ROLE,), f"grant execute on function {signature} to"),
        "notify pgrst, 'reload schema'",
    ]


def block(statements: str) -> str:
    """Statements that decide something, as one."""
    return f"do {_body(statements)}"


def _body(text: str) -> str:
    """Between dollars, under a name that does not occur in it."""
    name = next(tag for tag in (f"everpoll{number or ''}" for number in itertools.count()) if f"${tag}$" not in text)
    return f"${name}$\n{text}\n${name}$"


def _claim(table: Table, read: Sequence[str]) -> str:
    """One statement; what is due is decided by the database's clock.

    Materialised: the planner must not lock more rows than the limit. The start comes from outside: it is what a claim
    is found again by, when its answer got lost.
    """
    key, status = identifier(table.key), identifier(table.status)
    queued, where = literal(table.queued), qualified(table)
    due = (
        ""
        if table.due_at is None
        else f" and (t.{identifier(table.due_at)} is null or t.{identifier(table.due_at)} <= now())"
    )
    first = "" if table.priority is None else f"t.{identifier(table.priority)} desc nulls last, "
    sets = [f"{status} = {literal(table.running)}", f"{identifier(table.worker)} = $1"]
    sets += [f"{identifier(table.started_at)} = $2"]
    sets += [] if table.heartbeat is None else [f"{identifier(table.heartbeat)} = $2"]
    objects = [read[start : start + PAIRS] for start in range(0, len(read), PAIRS)]
    built = " || ".join(f"jsonb_build_object({', '.join(_pairs(part))})" for part in objects)
    return (
        f"with picked as materialized (\n"
        f"  select t.{key} as k from {where} t where t.{status} = {queued}{due}\n"
        f"  order by {first}t.{identifier(table.order_by)}, t.{key} limit greatest(least($3, 500), 0)\n"
        f"  for update skip locked\n"
        f"), ranked as (select k, row_number() over () as place from picked),\n"
        f"claimed as (\n"
        f"  update {where} t set {', '.join(sets)} from ranked\n"
        f"  where t.{key} = ranked.k and t.{status} = {queued}\n"
        f"  returning ranked.place, {built} as found\n"
        f") select found from (\n"
        f"  select 0 as place, jsonb_build_object({literal(CLOCK)}, now()) as found\n"
        f"  union all select place, found from claimed\n"
        f") answer order by place"
    )


def _pairs(names: Sequence[str]) -> list[str]:
    return [f"{literal(name)}, t.{identifier(name)}" for name in names]


def _for_roles(roles: Sequence[str], statement: str) -> str:
    """For those of these roles that there are: a bare PostgREST has others."""
    listed = ", ".join(literal(role) for role in roles)
    return block(
        "declare found name; begin\n"
        f"  for found in select rolname from pg_roles where rolname in ({listed}) loop\n"
        f"    execute {literal(statement + ' ')} || quote_ident(found);\n"
        "  end loop;\nend"
    )
