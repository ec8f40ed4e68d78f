"""What people ask about a table behind PostgREST: see `tables/overview.py`."""

from datetime import datetime

from everpoll.errors import BadInput
from everpoll.tables.overview import Reader, StatusCount
from everpoll.tables.statements import Values
from everpoll.tables.supabase.clock import DatabaseClock, read_instant
from everpoll.tables.supabase.http import Http, Request
from everpoll.tables.supabase.statements import Statements

COUNT_LIMIT = 1_000
"""Supabase answers with a thousand rows at most, unless the project says otherwise."""


class SupabaseReader(Reader[Request]):
    """Reads one table."""

    def __init__(self, statements: Statements, http: Http, clock: DatabaseClock) -> None:
        super().__init__(statements)
        self._http = http
        self._clock = clock

    async def now(self) -> datetime:
        """See `Reader`."""
        return self._clock.now()

    async def count(self, word: str) -> StatusCount:
        """See `Reader`."""
        rows = len(await self.select(["key"], "status", word, COUNT_LIMIT))
        return StatusCount(status=word, rows=rows, is_capped=rows >= COUNT_LIMIT)

    async def rows(self, statement: Request) -> list[Values]:
        """See `Reader`."""
        try:
            return await self._http.rows(statement)
        except BadInput:
            return []

    def instant(self, value: str) -> datetime:
        """See `Reader`."""
        return read_instant(value)
