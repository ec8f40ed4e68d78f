"""What is right and wrong with a table, as far as it can be seen over HTTP; and the DDL that would help.

PostgREST describes its tables in an OpenAPI document: columns, types, which are required. Where a server does not give
it, columns are asked for one by one, and types stay unknown. Indexes are never seen: a finding says so.
"""

# ruff: noqa: S608 - names and words are quoted

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from everpoll.errors import EverpollError, StoreUnavailable, TableUnfit
from everpoll.policy import human
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table
from everpoll.tables.supabase import faults
from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.filters import column
from everpoll.tables.supabase.functions import (
    CLOCK,
    block,
    functions_ddl,
    functions_of,
    identifier,
    literal,
    qualified,
    schema_of,
)
from everpoll.tables.supabase.http import Http, Request
from everpoll.tables.supabase.statements import Statements

INSTANTS = frozenset({"started_at", "finished_at", "heartbeat", "due_at", "updated_at"})
COUNTS = frozenset({"retries", "version"})
TEXTS = frozenset({"worker", "error"})
TEXT_TYPES = ("text", "character varying", "character", "citext", "varchar")
COUNT_TYPES = ("smallint", "integer", "bigint", "numeric")
TYPES = {
    "status": "text not null default {queued}",
    "order_by": "timestamptz not null default now()",
    "retries": "integer not null default 0",
    "priority": "integer not null default 0",
    "version": "integer not null default 1",
    "updated_at": "timestamptz not null default now()",
    **dict.fromkeys(("started_at", "finished_at", "heartbeat", "due_at"), "timestamptz"),
}
"""Of columns that are added, by what they are used for; `results` are JSON, everything else is a text."""
BREAK = ";\n\n"
"""Between statements of one finding; no statement has it inside."""
PUBLICATION = "supabase_realtime"


class Column(Struct, frozen=True):
    """As the OpenAPI document has it."""

    type: str
    words: tuple[str, ...] = ()
    """Of an enumeration."""


class Shape(Struct, frozen=True):
    """One table, as far as it can be seen."""

    columns: Mapping[str, Column | None]
    """None: it is there, and its type is not known."""
    required: frozenset[str] = frozenset()


async def read_shape(http: Http, statements: Statements) -> Shape:
    """Look at the table; `TableUnfit` where there is none."""
    table = statements.table
    names = list(dict.fromkeys(table.used.values()))
    try:
        await http.rows(statements.get(names, (), limit=0))
    except faults.Refused as error:
        if error.code != "42703":
            raise _unusable(table, error) from None
    described = await _described(http, statements)
    if described is not None:
        return described
    there = await asyncio.gather(*(_is_there(http, statements, name) for name in names))
    return Shape({name: None for name, is_there in zip(names, there, strict=True) if is_there})


async def may_write(http: Http, statements: Statements) -> Finding:
    """Whether the key may change the table: a claim that no row can meet changes none, and is refused all the same."""
    table = statements.table
    impossible = tuple((column(table.status), f"eq.{word}") for word in (table.queued, table.running))
    try:
        await http.rows(statements.patch([table.key], impossible, statements.probe()))
    except StoreUnavailable:
        raise
    except EverpollError as error:
        return Finding(what="rights", is_fit=False, detail=f"the key may not change the table: {error}")
    return Finding(what="rights", is_fit=True, detail="the key may read and change the table")


async def has_functions(http: Http, statements: Statements, clock: DatabaseClock) -> bool:
    """Whether the functions for this mapping are there, and may be called: a claim of no row tells; and the time."""
    names = functions_of(statements.table, statements.read)
    try:
        answer = await http.rows(statements.call(names.claim, {"worker": "", "started_at": "epoch", "most": 0}))
        await http.rows(statements.call(names.settle, {"writes": []}))
    except faults.Refused as error:
        if error.code in {faults.NO_FUNCTION, "42883", "42501"}:
            return False
        raise
    clock.saw(answer[0][CLOCK])
    return True


def findings(table: Table, shape: Shape) -> Iterator[Finding]:
    """Every column that the mapping names."""
    for role, name in table.used.items():
        yield _column(table, shape, role, name)


def functions_finding(statements: Statements, *, are_there: bool) -> Finding:
    """Guard "skip_locked" needs them."""
    names = functions_of(statements.table, statements.read)
    both = f"{names.claim} and {names.settle}"
    if are_there:
        return Finding(what="functions", is_fit=True, detail=f"{both}: claims by FOR UPDATE SKIP LOCKED")
    return Finding(
        what="functions",
        is_fit=False,
        detail=f'guard="skip_locked" needs {both}, which are not there or may not be called with this key; '
        'write guard="status" to do without',
        ddl=BREAK.join(functions_ddl(statements.table, statements.read)),
    )


def index_finding(table: Table) -> Finding:
    """Said, not seen."""
    detail = "an index cannot be seen over HTTP; without this one every look reads the whole table"
    return Finding(what="index", is_fit=False, is_needed=False, detail=detail, ddl=BREAK.join(index_ddl(table)))


def heartbeat_finding(table: Table) -> Finding:
    """Whether rows of a killed worker come back."""
    if table.heartbeat is None:
        detail = "without a column for it, rows of a killed worker stay as they are until somebody resets them"
        return Finding(what="heartbeat", is_fit=False, is_needed=False, detail=f"{detail}: name one with heartbeat=…")
    detail = f"every {human(table.heartbeat_every_s)}; given back after {human(table.stale_after_s)} without"
    return Finding(what="heartbeat", is_fit=True, detail=detail)


def unfit(table: Table, found: list[Finding]) -> TableUnfit | None:
    """Everything that is needed and not there, in one error; None: it can be used."""
    problems = [one for one in found if one.is_needed and not one.is_fit]
    if not problems:
        return None
    listed = "; ".join(f"{one.what}: {one.detail}" for one in problems)
    ddl = [statement for one in problems if one.ddl is not None for statement in one.ddl.split(BREAK)]
    help_ = "`everpoll tables ddl` prints the statements that would help, for the SQL editor"
    return TableUnfit(f"table {table.name!r} cannot be used as it is mapped: {listed}. {help_}", ddl)


def ddl(statements: Statements, shape: Shape | None) -> list[str]:
    """Every statement that gives the table what the mapping names; all of them may be run again."""
    table = statements.table
    there = {} if shape is None else shape.columns
    added = [_added(table, role, name) for role, name in table.used.items() if name not in there and role != "key"]
    functions = functions_ddl(table, statements.read) if table.guard == "skip_locked" else []
    return [*dict.fromkeys(added), *index_ddl(table), *functions, publication_ddl(table)]


def index_ddl(table: Table) -> list[str]:
    """The index of A6, and one for rows that wait for their time."""
    name = table.parts[-1]
    first = [] if table.priority is None else [f"{identifier(table.priority)} desc nulls last"]
    columns = ", ".join([identifier(table.status), *first, identifier(table.order_by), identifier(table.key)])
    made = [f"create index if not exists {identifier(_short(name, '_queue'))} on {qualified(table)} ({columns})"]
    if table.due_at is not None:
        columns = f"{identifier(table.status)}, {identifier(table.due_at)}"
        made.append(f"create index if not exists {identifier(_short(name, '_due'))} on {qualified(table)} ({columns})")
    return made


def publication_ddl(table: Table) -> str:
    """What makes Realtime tell of inserts: the table in the publication, once."""
    return block(
        "begin\n"
        f"  if exists (select from pg_publication where pubname = '{PUBLICATION}') and not exists (\n"
        f"    select from pg_publication_tables where pubname = '{PUBLICATION}'\n"
        f"    and schemaname = {literal(schema_of(table))} and tablename = {literal(table.parts[-1])}) then\n"
        f"    alter publication {PUBLICATION} add table {qualified(table)};\n"
        "  end if;\nend"
    )


def _short(name: str, ending: str) -> str:
    """An identifier ends at 63 bytes."""
    return name.encode()[: 63 - len(ending)].decode(errors="ignore") + ending


async def _described(http: Http, statements: Statements) -> Shape | None:
    """The table in the OpenAPI document; None: the server does not give it, or not with this table."""
    headers = statements.get([], ()).headers
    try:
        document: Any = await http.answer(Request(method="GET", path="/", headers=headers))
    except faults.Refused:
        return None
    try:
        found = document["definitions"][statements.table.parts[-1]]
        columns = {
            str(name): Column(str(one.get("format", "")).lower(), tuple(one.get("enum", ())))
            for name, one in found["properties"].items()
        }
        return Shape(columns, frozenset(found.get("required", ())))
    except (KeyError, TypeError, AttributeError):
        return None


async def _is_there(http: Http, statements: Statements, name: str) -> bool:
    try:
        await http.rows(statements.get([name], (), limit=0))
    except faults.Refused as error:
        if error.code == "42703":
            return False
        raise
    return True


def _unusable(table: Table, error: faults.Refused) -> TableUnfit:
    if error.code in {"42P01", "PGRST205"}:
        return TableUnfit(f"table {table.name!r} is not there, or not served by this address: {error}")
    return TableUnfit(f"table {table.name!r} cannot be used with this key: {error}")


def _column(table: Table, shape: Shape, role: str, name: str) -> Finding:
    what = f"column {name}"
    if name not in shape.columns:
        as_what = "" if role == name else f", which is to be its {role}"
        added = None if role == "key" else _added(table, role, name)
        return Finding(what=what, is_fit=False, detail=f"the table has no such column{as_what}", ddl=added)
    found = shape.columns[name]
    if found is None or not found.type:
        return Finding(what=what, is_fit=True, detail="its type cannot be seen")
    problem = _problem(table, role, found)
    return Finding(what=what, is_fit=problem is None, detail=problem or found.type)


def _problem(table: Table, role: str, found: Column) -> str | None:
    kind, wanted = found.type, None
    if role in INSTANTS and not kind.startswith("timestamp"):
        wanted = "an instant: timestamptz"
    elif role in COUNTS and not kind.startswith(COUNT_TYPES):
        wanted = "a whole number: integer"
    elif role in TEXTS and not kind.startswith(TEXT_TYPES):
        wanted = "a text"
    elif role == "status" and found.words:
        words = [table.queued, table.running, table.done, table.failed, *([table.canceled] if table.canceled else [])]
        missing = [word for word in words if word not in found.words]
        wanted = f"the words {', '.join(missing)}" if missing else None
    elif role == "status" and kind.startswith((*COUNT_TYPES, "timestamp", "boolean", "uuid", "json")):
        wanted = "a text"
    return None if wanted is None else f"it is {kind}, and must be able to hold {wanted}"


def _added(table: Table, role: str, name: str) -> str:
    kind = TYPES.get(role, "jsonb" if name in table.results else "text").format(queued=literal(table.queued))
    return f"alter table {qualified(table)} add column if not exists {identifier(name)} {kind}"
