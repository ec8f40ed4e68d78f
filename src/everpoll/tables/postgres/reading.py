"""What people ask about a table in Postgres: see `tables/overview.py`."""

from datetime import datetime

import asyncpg

from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import BadInput
from everpoll.tables.overview import COUNT_LIMIT, Reader, StatusCount, counted
from everpoll.tables.postgres.statements import Sql, Statements
from everpoll.tables.statements import Values


class PostgresReader(Reader[Sql]):
    """Reads one table."""

    def __init__(self, statements: Statements, lane: Lane) -> None:
        super().__init__(statements)
        self._phrases = statements
        self._lane = lane

    async def now(self) -> datetime:
        """See `Reader`."""
        now: datetime = await self._lane.value("select now()")
        return now

    async def count(self, word: str) -> StatusCount:
        """See `Reader`. The index has queued and running rows only: those that ended are counted in a small table."""
        table = self._phrases.table
        if word not in {table.queued, table.running} and await self._counted("true") > COUNT_LIMIT:
            return StatusCount(status=word, rows=None)
        return counted(word, await self._counted(self._phrases.has_status(word)))

    async def _counted(self, condition: str) -> int:
        count: int = await self._lane.value(self._phrases.counted(condition, COUNT_LIMIT + 1))
        return count

    async def rows(self, statement: Sql) -> list[Values]:
        """See `Reader`."""
        try:
            return await self._lane.rows(*statement)
        except (asyncpg.DataError, BadInput):
            return []

    def instant(self, value: datetime) -> datetime:
        """See `Reader`."""
        return value
