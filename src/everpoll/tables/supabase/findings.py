"""What is right and wrong with a table, as far as it can be seen over HTTP; and the DDL that would help.

Indexes are hardly ever seen over HTTP: a finding says so.
"""

from collections.abc import Iterator

import msgspec

from everpoll.errors import EverpollError, StoreUnavailable, TableUnfit
from everpoll.tables.contract import Finding
from everpoll.tables.findings import INSTANTS, NUMBERS, TEXTS
from everpoll.tables.mapping import Table
from everpoll.tables.supabase import faults
from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.ddl import added, index_ddl
from everpoll.tables.supabase.filters import column
from everpoll.tables.supabase.functions import (
    CLOCK,
    functions_ddl,
    functions_of,
)
from everpoll.tables.supabase.http import Http
from everpoll.tables.supabase.shape import Column, Shape
from everpoll.tables.supabase.statements import Statements

TEXT_TYPES = ("text", "character varying", "character", "citext", "varchar")
COUNT_TYPES = ("smallint", "integer", "bigint", "numeric")
BREAK = ";\n\n"
"""Between statements of one finding; no statement has it inside."""


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
        answer = await http.answer(statements.call(names.claim, {"worker": "", "started_at": "epoch", "most": 0}))
        await http.answer(statements.call(names.settle, {"writes": []}))
    except faults.Refused as error:
        if error.code in {faults.NO_FUNCTION, "42883", "42501"}:
            return False
        raise
    clock.saw(answer[CLOCK])
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


async def index_finding(http: Http, statements: Statements) -> Finding:
    """Whether looks use an index, where the server tells its plans (`db-plan-enabled`); mostly it does not."""
    table = statements.table
    request = statements.candidates(1)
    headers = {**request.headers, "Accept": "application/vnd.pgrst.plan+json"}
    try:
        plan = str(await http.answer(msgspec.structs.replace(request, headers=headers)))
    except faults.Refused:
        detail = "an index cannot be seen over HTTP; without this one every look reads the whole table"
        return Finding(what="index", is_fit=False, is_needed=False, detail=detail, ddl=BREAK.join(index_ddl(table)))
    is_fit = "Index" in plan and "'Sort'" not in plan
    detail = "looks use an index" if is_fit else "every look reads and sorts the whole table"
    ddl = None if is_fit else BREAK.join(index_ddl(table))
    return Finding(what="index", is_fit=is_fit, detail=detail, ddl=ddl)


def unfit(table: Table, found: list[Finding]) -> TableUnfit | None:
    """Everything that is needed and not there, in one error; None: it can be used."""
    problems = [one for one in found if one.keeps_from_use]
    if not problems:
        return None
    listed = "; ".join(f"{one.what}: {one.detail}" for one in problems)
    ddl = [statement for one in problems if one.ddl is not None for statement in one.ddl.split(BREAK)]
    help_ = "`everpoll tables ddl` prints the statements that would help, for the SQL editor"
    return TableUnfit(f"table {table.name!r} cannot be used as it is mapped: {listed}. {help_}", ddl)


def _column(table: Table, shape: Shape, role: str, name: str) -> Finding:
    what = f"column {name}"
    if name not in shape.columns:
        as_what = "" if role == name else f", which is to be its {role}"
        ddl = None if role == "key" else added(table, role, name)
        return Finding(what=what, is_fit=False, detail=f"the table has no such column{as_what}", ddl=ddl)
    found = shape.columns[name]
    if found is None or not found.type:
        return Finding(what=what, is_fit=True, detail="its type cannot be seen")
    problem = _problem(table, role, found)
    return Finding(what=what, is_fit=problem is None, detail=problem or found.type)


def _problem(table: Table, role: str, found: Column) -> str | None:
    kind, wanted = found.type, None
    if role in INSTANTS and not kind.startswith("timestamp"):
        wanted = "an instant: timestamptz"
    elif role in NUMBERS and not kind.startswith(COUNT_TYPES):
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
