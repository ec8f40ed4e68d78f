"""What people ask about a table behind PostgREST: see `overview`."""

from datetime import datetime
from typing import Any

from everpoll.errors import BadInput
from everpoll.tables.overview import (
    HELD_LIMIT,
    INSTANT_ROLES,
    Held,
    RowState,
    StatusCount,
    TableWorker,
    state_roles,
    table_workers,
)
from everpoll.tables.supabase.clock import read_instant
from everpoll.tables.supabase.filters import column, equals
from everpoll.tables.supabase.http import Http
from everpoll.tables.supabase.statements import Statements

COUNT_LIMIT = 1_000
"""Supabase answers with a thousand rows at most, unless the project says otherwise."""


async def counts(http: Http, statements: Statements) -> list[StatusCount]:
    """Rows by status."""
    found = []
    for status in statements.table.words:
        rows = len(await http.rows(statements.get([statements.table.key], _is(statements, status), limit=COUNT_LIMIT)))
        found.append(StatusCount(status=status, rows=rows, is_capped=rows >= COUNT_LIMIT))
    return found


async def workers(http: Http, statements: Statements, now: datetime) -> list[TableWorker]:
    """Workers that hold rows."""
    table = statements.table
    names = [name for name in (table.worker, table.started_at, table.heartbeat) if name is not None]
    rows = await http.rows(statements.get(names, _is(statements, table.running), limit=HELD_LIMIT))
    held = (
        Held(row[table.worker], _instant(row[table.started_at]), _instant(row.get(table.heartbeat or "")))
        for row in rows
    )
    return table_workers(table, held, now)


async def row_state(http: Http, statements: Statements, key: str, now: datetime) -> RowState | None:
    """One row; None: there is none with this key."""
    table, roles = statements.table, state_roles(statements.table)
    names = [getattr(table, role) for role in roles]
    try:
        rows = await http.rows(statements.get(names, ((column(table.key), equals(key)),), limit=1))
    except BadInput:
        return None  # a text that the key's type does not take is the key of no row
    if not rows:
        return None
    return RowState(now, **{role: _value(role, rows[0][name]) for role, name in zip(roles, names, strict=True)})


def _is(statements: Statements, status: str) -> tuple[tuple[str, str], ...]:
    return ((column(statements.table.status), equals(status)),)


def _value(role: str, value: Any) -> Any:
    if role in INSTANT_ROLES:
        return _instant(value)
    return value if value is None or role == "retries" else str(value)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else read_instant(text)
