"""The heartbeat over PostgREST, on an event loop and connections of its own. See `tables/heartbeat_connection.py`.

Promises: it takes a row back only if the row has not changed since it was read, so two workers that find the same row
take it back once.

The age of a heartbeat is judged by the database's time (`DatabaseClock`). If that is unknown, a row counts as lost only
after this process has seen the same heartbeat for the whole limit.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from everpoll.drivers.postgrest import faults
from everpoll.drivers.postgrest.clock import monotonic_s
from everpoll.drivers.postgrest.http import Http, Link, Request
from everpoll.tables.heartbeat_connection import RESCUE_LIMIT, Beats
from everpoll.tables.statements import Values
from everpoll.tables.supabase.statements import Statements


class SupabaseBeats(Beats[Request]):
    """Created and used in the heartbeat's thread."""

    def __init__(self, statements: Statements, link: Link) -> None:
        super().__init__(statements)
        self._link = link
        self._requests = statements
        self._http: Http | None = None
        self._runner = asyncio.Runner()
        self._seen: dict[Any, tuple[str | None, float]] = {}
        """By key: the heartbeat of a row, and since when it is the same; kept only while no clock can be trusted."""

    def is_refusal(self, error: Exception) -> bool:
        """See `Beats`."""
        return faults.is_about_a_row(error)

    def rescue(self, rows: Sequence[Values] | None = None) -> list[Values]:
        """See `Beats`."""
        return super().rescue(self.stale(RESCUE_LIMIT) if rows is None else rows)

    def stale(self, limit: int) -> list[Values]:
        """See `Beats`."""
        clock, limit_s = self._link.clock, self._requests.table.stale_after_s
        if clock.is_sure:
            self._seen.clear()
            return self.run(self._requests.stale(limit, clock.now() - timedelta(seconds=limit_s)))
        rows, now_s = self.run(self._requests.stale(limit)), monotonic_s()
        last, self._seen = self._seen, {}
        for row in rows:
            sign = self._requests.heard_at(row)
            last_sign, since_s = last.get(row[0], (sign, now_s))
            self._seen[row[0]] = (sign, since_s if sign == last_sign else now_s)
        return [row for row in rows if self._is_silent(row[0], now_s - limit_s)]

    def _is_silent(self, key: Any, since_s: float) -> bool:
        sign, seen_s = self._seen[key]
        return sign is not None and seen_s <= since_s

    def run(self, statements: Iterable[Request]) -> list[Values]:
        """See `Beats`."""
        requests = list(statements)

        async def ask() -> list[list[Values]]:
            if self._http is None:
                self._http = Http(self._link)
            return await asyncio.gather(*map(self._http.rows, requests))

        return [row for rows in self._runner.run(ask()) for row in rows] if requests else []

    def close(self) -> None:
        """See `Beats`."""
        try:
            if self._http is not None:
                self._runner.run(self._http.close())
        finally:
            self._runner.close()
