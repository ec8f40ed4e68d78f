"""Findings that only PostgREST has: rights, functions, hardly ever an index. See `tables/findings.py`."""

import msgspec

from everpoll.drivers.postgrest import faults
from everpoll.drivers.postgrest.filters import column
from everpoll.drivers.postgrest.http import Http
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.tables.contract import Finding
from everpoll.tables.findings import judged
from everpoll.tables.supabase.ddl import ddl_of
from everpoll.tables.supabase.functions import Functions
from everpoll.tables.supabase.statements import Statements

BREAK = ";\n\n"
"""Between statements of one finding; no statement has it inside."""


async def may_write(http: Http, statements: Statements) -> Finding:
    """Judge whether the key may change the table, by a claim that no row can match: it is refused without the right."""
    table = statements.table
    impossible = tuple((column(table.status), f"eq.{word}") for word in (table.queued, table.running))
    try:
        await http.rows(statements.patch([table.key], impossible, statements.probe()))
    except StoreUnavailable:
        raise
    except EverpollError as error:
        return Finding(what="rights", is_fit=False, detail=f"the key may not change the table: {error}")
    return Finding(what="rights", is_fit=True, detail="the key may read and change the table")


async def functions_finding(http: Http, statements: Statements, names: Functions) -> Finding:
    """Judge the functions, which guard "skip_locked" needs, by a claim of no row."""
    are_there = True
    try:
        await http.called(statements.call(names.claim, {"worker": "", "started_at": "epoch", "most": 0}))
        await http.called(statements.call(names.settle, {"writes": []}))
    except faults.Refused as error:
        if error.code not in {faults.NO_FUNCTION, "42883", "42501"}:
            raise
        are_there = False
    both = f"{names.claim} and {names.settle}"
    return judged(
        "functions",
        is_fit=are_there,
        good=f"{both}: claims by FOR UPDATE SKIP LOCKED",
        bad=f'guard="skip_locked" needs {both}, which are not there or may not be called with this key; '
        'write guard="status" to do without',
        ddl=BREAK.join(ddl_of(statements.table).extras["functions"]),
        is_needed=True,
    )


async def index_finding(http: Http, statements: Statements) -> Finding:
    """Judge whether looks use an index, if the server shows its plans (`db-plan-enabled`); most do not."""
    request, made = statements.poll(1), ddl_of(statements.table)
    ddl = BREAK.join([made.index(), *([] if statements.table.due_at is None else [made.due_index()])])
    headers = {**request.headers, "Accept": "application/vnd.pgrst.plan+json"}
    try:
        plan = str(await http.answer(msgspec.structs.replace(request, headers=headers)))
    except faults.Refused:
        hidden = "an index cannot be seen over HTTP; without this one every look reads the whole table"
        return judged("index", is_fit=False, good="", bad=hidden, ddl=ddl)
    is_fit = "Index" in plan and "'Sort'" not in plan
    bad = "every look reads and sorts the whole table"
    return judged("index", is_fit=is_fit, good="looks use an index", bad=bad, ddl=ddl, is_needed=True)
