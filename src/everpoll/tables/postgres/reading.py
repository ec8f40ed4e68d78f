"""What people ask about a table in Postgres: see `overview`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import BadInput
from everpoll.tables.overview import COUNT_LIMIT, INSTANT_ROLES, StatusCount, counted
from everpoll.tables.postgres.statements import Statements


class PostgresReader:
    """Reads one table."""

    def __init__(self, lane: Lane, statements: Statements) -> None:
        self._lane = lane
        self._statements = statements

    async def now(self) -> datetime:
        """See `Reader`."""
        now: datetime = await self._lane.value("select now()")
        return now

    async def count(self, word: str) -> StatusCount:
        """See `Reader`. The index has queued and running rows only: those that ended are counted in a small table."""
        rows, table = f"select from {self._statements.name}", self._statements.table
        if word not in {table.queued, table.running} and await self._counted(rows) > COUNT_LIMIT:
            return StatusCount(status=word, rows=None)
        return counted(word, await self._counted(f"{rows} where {self._statements.has_status(word)}"))

    async def _counted(self, rows: str) -> int:
        count: int = await self._lane.value(f"select count(*) from ({rows} limit {COUNT_LIMIT + 1}) as few")
        return count

    async def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> list[dict[str, Any]]:
        """See `Reader`."""
        statements = self._statements
        columns = ", ".join(self._typed(one) for one in roles)
        which, given = statements.has_status(value), []
        if role != "status":
            which, given = f"{statements.at(role)} = $1::text::{statements.column_of(role).type}", [value]
        try:
            rows = await self._lane.rows(f"select {columns} from {statements.name} where {which} limit {limit}", *given)
        except (asyncpg.DataError, BadInput):
            return []
        return [dict(zip(roles, row, strict=True)) for row in rows]

    def _typed(self, role: str) -> str:
        if role in INSTANT_ROLES:
            return self._statements.instant(role)
        return f"{self._statements.at(role)}::int8" if role == "retries" else self._statements.text(role)
