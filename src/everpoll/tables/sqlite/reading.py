"""What people ask about a table in an SQLite file: see `overview`."""

# ruff: noqa: S608 - names and words are quoted, values are bound

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.overview import COUNT_LIMIT, INSTANT_ROLES, StatusCount, counted
from everpoll.tables.sqlite.instants import EPOCH, read_us
from everpoll.tables.sqlite.statements import Statements

Use = Callable[[Connection], Any]


class SqliteReader:
    """Reads one table. `use` runs a function with a connection of its own, and blocks."""

    def __init__(self, statements: Statements, use: Callable[[Use], Any]) -> None:
        self._statements = statements
        self._use = use

    async def now(self) -> datetime:
        """See `Reader`."""
        return datetime.now(UTC)

    async def counts(self) -> list[StatusCount]:
        """See `Reader`."""

        def count(con: Connection, word: str) -> StatusCount:
            some = f"select 1 from {statements.name} where {statements.has_status(word)} limit {COUNT_LIMIT + 1}"
            (rows,) = con.execute(f"select count(*) from ({some})").fetchone()
            return counted(word, rows)

        statements = self._statements
        found: list[StatusCount] = await asyncio.to_thread(
            self._use, lambda con: [count(con, word) for word in statements.table.words]
        )
        return found

    async def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> list[dict[str, Any]]:
        """See `Reader`."""
        statements = self._statements
        columns = ", ".join(map(statements.at, roles))
        which = statements.has_status(value) if role == "status" else f"{statements.at(role)} = :value"
        sql = f"select {columns} from {statements.name} where {which} limit {limit}"

        def select(con: Connection) -> list[Any]:
            rows = con.execute(sql, {"value": value}).fetchall()
            if not rows and role == "key" and value.isascii() and value.lstrip("-").isdigit():
                # A column without a type keeps numbers and texts apart.
                rows = con.execute(sql, {"value": int(value)}).fetchall()
            return rows

        found = await asyncio.to_thread(self._use, select)
        return [{one: _value(one, value) for one, value in zip(roles, row, strict=True)} for row in found]


def _value(role: str, value: Any) -> Any:
    if role in INSTANT_ROLES:
        instant_us = read_us(value)
        return None if instant_us is None else EPOCH + timedelta(microseconds=instant_us)
    return value if value is None or role == "retries" else str(value)
