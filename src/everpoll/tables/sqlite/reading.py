"""What people ask about a table in an SQLite file: see `overview`."""

# ruff: noqa: S608 - names and words are quoted, values are bound

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.own_connection import brief_connection
from everpoll.tables.overview import COUNT_LIMIT, INSTANT_ROLES, StatusCount, counted
from everpoll.tables.sqlite.instants import EPOCH, read_us
from everpoll.tables.sqlite.statements import Statements


class SqliteReader:
    """Reads one table, in a thread, on a connection for each question."""

    def __init__(self, statements: Statements, address: SqliteAddress, patience_s: float) -> None:
        self._statements = statements
        self._address = address
        self._patience_s = patience_s

    async def now(self) -> datetime:
        """See `Reader`."""
        return datetime.now(UTC)

    async def count(self, word: str) -> StatusCount:
        """See `Reader`."""
        statements, most = self._statements, COUNT_LIMIT + 1
        some = f"select 1 from {statements.name} where {statements.has_status(word)} limit {most}"
        [(rows,)] = await asyncio.to_thread(self._rows, f"select count(*) from ({some})")
        return counted(word, rows)

    async def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> list[dict[str, Any]]:
        """See `Reader`."""
        statements = self._statements
        columns = ", ".join(map(statements.at, roles))
        which = statements.has_status(value) if role == "status" else f"{statements.at(role)} = ?"
        sql = f"select {columns} from {statements.name} where {which} limit {limit}"
        given = () if role == "status" else (value,)
        rows = await asyncio.to_thread(self._rows, sql, *given)
        if not rows and role == "key" and value.isascii() and value.lstrip("-").isdigit():
            # A column without a type keeps numbers and texts apart.
            rows = await asyncio.to_thread(self._rows, sql, int(value))
        return [{one: _value(one, value) for one, value in zip(roles, row, strict=True)} for row in rows]

    def _rows(self, sql: str, *given: Any) -> list[Any]:
        with brief_connection(self._address, self._patience_s) as con:
            return con.execute(sql, given).fetchall()


def _value(role: str, value: Any) -> Any:
    if role in INSTANT_ROLES:
        instant_us = read_us(value)
        return None if instant_us is None else EPOCH + timedelta(microseconds=instant_us)
    return value if value is None or role == "retries" else str(value)
