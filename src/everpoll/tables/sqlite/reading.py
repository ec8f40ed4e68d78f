"""What people ask about a table in an SQLite file: see `overview`."""

# ruff: noqa: S608 - names and words are quoted, values are bound

from datetime import UTC, datetime, timedelta
from typing import Any

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.mapping import Table
from everpoll.tables.overview import (
    COUNT_LIMIT,
    HELD_LIMIT,
    INSTANT_ROLES,
    Held,
    RowState,
    StatusCount,
    TableWorker,
    counted,
    state_roles,
    table_workers,
)
from everpoll.tables.sqlite.instants import EPOCH, read_us
from everpoll.tables.sqlite.statements import named, word


def counts(con: Connection, table: Table) -> list[StatusCount]:
    """Rows by status."""
    found = []
    for status in table.words:
        rows = f"select 1 from {_where(table)} where {named(table.status)} = {word(status)} limit {COUNT_LIMIT + 1}"
        (number,) = con.execute(f"select count(*) from ({rows})").fetchone()
        found.append(counted(status, number))
    return found


def workers(con: Connection, table: Table) -> list[TableWorker]:
    """Workers that hold rows."""
    beat = "null" if table.heartbeat is None else named(table.heartbeat)
    running = f"{named(table.status)} = {word(table.running)}"
    columns = f"{named(table.worker)}, {named(table.started_at)}, {beat}"
    rows = con.execute(f"select {columns} from {_where(table)} where {running} limit {HELD_LIMIT}").fetchall()
    held = (Held(None if row[0] is None else str(row[0]), _instant(row[1]), _instant(row[2])) for row in rows)
    return table_workers(table, held, datetime.now(UTC))


def row_state(con: Connection, table: Table, key: str) -> RowState | None:
    """One row; None: there is none with this key."""
    roles = state_roles(table)
    columns = ", ".join(named(getattr(table, role)) for role in roles)
    sql = f"select {columns} from {_where(table)} where {named(table.key)} = ?"
    row = con.execute(sql, (key,)).fetchone()
    if row is None and key.isascii() and key.lstrip("-").isdigit():
        row = con.execute(sql, (int(key),)).fetchone()  # a column without a type keeps numbers and texts apart
    if row is None:
        return None
    values = {role: _value(role, value) for role, value in zip(roles, row, strict=True)}
    return RowState(datetime.now(UTC), **values)


def _where(table: Table) -> str:
    return f"main.{named(table.parts[-1])}"


def _value(role: str, value: Any) -> Any:
    if role in INSTANT_ROLES:
        return _instant(value)
    return value if value is None or role == "retries" else str(value)


def _instant(value: Any) -> datetime | None:
    instant_us = read_us(value)
    return None if instant_us is None else EPOCH + timedelta(microseconds=instant_us)
