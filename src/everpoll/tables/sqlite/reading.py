"""What people ask about a table in an SQLite file: see `tables/overview.py`."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.own_connection import brief_connection
from everpoll.tables.overview import COUNT_LIMIT, Reader, StatusCount, counted
from everpoll.tables.sqlite.instants import EPOCH, read_us
from everpoll.tables.sqlite.statements import Sql, Statements
from everpoll.tables.statements import Values


class SqliteReader(Reader[Sql]):
    """Reads one table, in a thread, on a connection for each question."""

    def __init__(self, statements: Statements, address: SqliteAddress, patience_s: float) -> None:
        super().__init__(statements)
        self._phrases = statements
        self._address = address
        self._patience_s = patience_s

    async def now(self) -> datetime:
        """See `Reader`."""
        return datetime.now(UTC)

    async def count(self, word: str) -> StatusCount:
        """See `Reader`."""
        [[rows]] = await self.rows((self._phrases.counted(self._phrases.has_status(word), COUNT_LIMIT + 1), {}))
        return counted(word, rows)

    async def rows(self, statement: Sql) -> list[Values]:
        """See `Reader`."""

        def read() -> list[Values]:
            with brief_connection(self._address, self._patience_s) as con:
                return con.execute(*statement).fetchall()

        return await asyncio.to_thread(read)

    def instant(self, value: Any) -> datetime | None:
        """See `Reader`."""
        instant_us = read_us(value)
        return None if instant_us is None else EPOCH + timedelta(microseconds=instant_us)
