"""The functions that give guard="skip_locked" over HTTP: the user creates them, everpoll finds them.

    everpoll_claim_…     one round trip, FOR UPDATE SKIP LOCKED
    everpoll_settle_…    a whole batch in one round trip and one transaction, with different values for each row

Their names carry a digest of the mapping: another mapping needs other functions, and never calls these.
They run with the rights of the role that created them and a fixed search path, and only the service role may call them.
"""

# ruff: noqa: S608 - names and words are quoted

import hashlib
import itertools
import json
from collections.abc import Sequence

from msgspec import Struct

from everpoll.drivers.postgrest.http import CLOCK, ROWS
from everpoll.tables.changes import RuntimeValue
from everpoll.tables.mapping import COMPARED, Table
from everpoll.tables.shape import Shape
from everpoll.tables.sql_names import identifier, literal
from everpoll.tables.statements import Phrases

ROLES = ("anon", "authenticated")
"""Supabase lets these roles call every new function of the schema `public`, even after a revoke from PUBLIC."""
SERVICE_ROLE = "service_role"


def schema_of(table: Table) -> str:
    """Return the schema of the table: `public` if none is named, Supabase's default."""
    return table.parts[0] if len(table.parts) > 1 else "public"


def qualified(table: Table) -> str:
    """Return the table's quoted name with its schema."""
    return f"{identifier(schema_of(table))}.{identifier(table.parts[-1])}"


class Functions(Struct, frozen=True):
    """The names of the functions for one mapping."""

    claim: str
    settle: str


def claimed_columns(table: Table) -> list[str]:
    """Return the columns that a claim returns: what later writes need, and what the handler reads."""
    roles = ("key", "started_at", "heartbeat", "retries", COMPARED.get(table.guard))
    needed = [table.used[role] for role in roles if role in table.used]
    return list(dict.fromkeys([*needed, *table.columns]))


def functions_of(table: Table) -> Functions:
    """Return the names of the functions, which depend on everything that they contain."""
    used = [table.name, table.used, table.queued, table.running, claimed_columns(table)]
    digest = hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:12]
    return Functions(f"everpoll_claim_{digest}", f"everpoll_settle_{digest}")


def functions_ddl(table: Table) -> list[str]:
    """Return the statements that create the functions, for Supabase's SQL editor for instance. They are repeatable."""
    names = functions_of(table)
    claim = {"worker": "text", "started_at": "timestamptz", "most": "integer"}
    return [
        *_made(table, names.claim, claim, _claim(table)),
        *_made(table, names.settle, {"writes": "jsonb"}, _settle(table)),
        "notify pgrst, 'reload schema'",
    ]


def _made(table: Table, name: str, arguments: dict[str, str], statement: str) -> list[str]:
    full = f"{identifier(schema_of(table))}.{name}"
    signature = f"{full}({', '.join(arguments.values())})"
    takes = ", ".join(f"{argument} {kind}" for argument, kind in arguments.items())
    made = (
        f"create or replace function {full}({takes}) returns jsonb\n"
        f"language sql volatile security definer set search_path = pg_catalog, pg_temp as {_body(statement)}"
    )
    return [
        made,
        f"revoke execute on function {signature} from public",
        _for_roles(ROLES, f"revoke execute on function {signature} from"),
        _for_roles((SERVICE_ROLE,), f"grant execute on function {signature} to"),
    ]


def block(statements: str) -> str:
    """Wrap statements with conditions into a single statement."""
    return f"do {_body(statements)}"


def _body(text: str) -> str:
    """Quote a function's body by dollars, with a tag that does not occur in it."""
    name = next(tag for tag in (f"everpoll{number or ''}" for number in itertools.count()) if f"${tag}$" not in text)
    return f"${name}$\n{text}\n${name}$"


class FunctionPhrases(Phrases):
    """Phrases for a table `t` whose column types are unknown. $1 is the worker, $2 the start."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, Shape(columns={}))

    def given(self, role: str, value: RuntimeValue) -> str:
        """See `Phrases`."""
        return "$1" if value is RuntimeValue.WORKER else "$2"


def _claim(table: Table) -> str:
    """Return the statement of the function that claims. The database's clock decides what is due.

    The pick is materialised, so that the planner does not lock more rows than the limit. The caller gives the start:
    if the answer gets lost, it finds its rows by it.
    """
    phrases, where, read = FunctionPhrases(table), qualified(table), claimed_columns(table)
    is_queued, key = phrases.has_status(table.queued), phrases.key
    columns = ", ".join(phrases.named(name) for name in read)
    return (
        f"with picked as materialized (\n"
        f"  select {key} as k from {where} t where {phrases.is_ready}\n"
        f"  order by {phrases.ordered(' desc nulls last')} limit greatest(least($3, 500), 0)\n"
        f"  for update skip locked\n"
        f"), ranked as (select k, row_number() over () as place from picked),\n"
        f"claimed as (\n"
        f"  update {where} t set {phrases.sets(phrases.changes.claimed)} from ranked\n"
        f"  where {key} = ranked.k and {is_queued}\n"
        f"  returning ranked.place, (select to_jsonb(read) from (select {columns}) read) as found\n"
        f") select jsonb_build_object({literal(CLOCK)}, now(), {literal(ROWS)},\n"
        f"  coalesce(jsonb_agg(found order by place), '[]')) from claimed"
    )


def _settle(table: Table) -> str:
    """Return the statement that writes each row by its fence and keeps each column that a write does not name."""
    key, running = identifier(table.key), literal(table.running)
    fence = [f"t.{identifier(name)} = (w.f).{identifier(name)}" for name in (table.key, table.worker, table.started_at)]
    names = [table.used[role] for role in FunctionPhrases(table).changes.settled_roles]
    sets = ",\n  ".join(f"{identifier(name)} = {_or_as_it_is(name)}" for name in names)
    record = f"jsonb_populate_record(null::{qualified(table)}, e ->"
    return (
        f"with w as materialized (\n"
        f"  select {record} 'fence') as f, {record} 'body') as n, e -> 'body' as b from jsonb_array_elements($1) e\n"
        f"), settled as (\nupdate {qualified(table)} t set\n  {sets}\n"
        f"from w where t.{identifier(table.status)} = {running} and {' and '.join(fence)}\n"
        f"returning t.{key} as k\n"
        f") select jsonb_build_object({literal(CLOCK)}, now(), {literal(ROWS)},\n"
        f"  coalesce(jsonb_agg(k), '[]')) from settled"
    )


def _or_as_it_is(name: str) -> str:
    return f"case when w.b ? {literal(name)} then (w.n).{identifier(name)} else t.{identifier(name)} end"


def _for_roles(roles: Sequence[str], statement: str) -> str:
    """Return a block that runs a statement for each of these roles that exists: a bare PostgREST has others."""
    listed = ", ".join(literal(role) for role in roles)
    return block(
        "declare found name; begin\n"
        f"  for found in select rolname from pg_roles where rolname in ({listed}) loop\n"
        f"    execute {literal(statement + ' ')} || quote_ident(found);\n"
        "  end loop;\nend"
    )
