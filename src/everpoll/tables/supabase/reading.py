"""What people ask about a table behind PostgREST: see `overview`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from everpoll.errors import BadInput
from everpoll.tables.overview import INSTANT_ROLES, StatusCount
from everpoll.tables.supabase.clock import DatabaseClock, read_instant
from everpoll.tables.supabase.filters import column, equals
from everpoll.tables.supabase.http import Http
from everpoll.tables.supabase.statements import Statements

COUNT_LIMIT = 1_000
"""Supabase answers with a thousand rows at most, unless the project says otherwise."""


class SupabaseReader:
    """Reads one table."""

    def __init__(self, http: Http, statements: Statements, clock: DatabaseClock) -> None:
        self._http = http
        self._statements = statements
        self._clock = clock

    async def now(self) -> datetime:
        """See `Reader`."""
        return self._clock.now()

    async def count(self, word: str) -> StatusCount:
        """See `Reader`."""
        rows = len(await self.select(["key"], "status", word, COUNT_LIMIT))
        return StatusCount(status=word, rows=rows, is_capped=rows >= COUNT_LIMIT)

    async def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> list[dict[str, Any]]:
        """See `Reader`."""
        used = self._statements.table.used
        names = [used[one] for one in roles]
        try:
            rows = await self._http.rows(
                self._statements.get(names, ((column(used[role]), equals(value)),), limit=limit)
            )
        except BadInput:
            return []
        return [{one: _value(one, row[used[one]]) for one in roles} for row in rows]


def _value(role: str, value: Any) -> Any:
    if value is None or role == "retries":
        return value
    return read_instant(value) if role in INSTANT_ROLES else str(value)
