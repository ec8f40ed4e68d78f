"""The heartbeat over PostgREST, on an event loop and connections of its own. See `tables/pulse.py`.

Promises: it takes a row back only if the row has not changed since it was read, so two workers that find the same row
take it back once.

The age of a heartbeat is judged by the database's time (`DatabaseClock`). If that is unknown, a row counts as lost only
after this process has seen the same heartbeat for the whole limit.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from everpoll.tables.claims import Claim, by_fence
from everpoll.tables.pulse import RESCUE_LIMIT
from everpoll.tables.supabase import faults
from everpoll.tables.supabase.clock import monotonic_s
from everpoll.tables.supabase.http import Http, Link, Request
from everpoll.tables.supabase.statements import Body, Statements

Requests = Callable[[Claim, Sequence[Any]], Iterator[Request]]


class SupabaseBeats:
    """The heartbeat's database; created and used in the heartbeat's thread."""

    def __init__(self, link: Link, statements: Statements) -> None:
        self._link = link
        self._statements = statements
        self._table = statements.table
        self._http: Http | None = None
        self._runner = asyncio.Runner()
        self._seen: dict[Any, tuple[str | None, float]] = {}
        """By key: the heartbeat of a row, and since when it is the same; kept only while no clock can be trusted."""

    def session(self) -> AbstractContextManager[object]:
        """See `BeatDatabase`."""
        return nullcontext()

    def is_refusal(self, error: Exception) -> bool:
        """See `BeatDatabase`."""
        return faults.is_about_a_row(error)

    def beat(self, claims: Sequence[Claim]) -> set[Any]:
        """See `BeatDatabase`."""
        rows = self._asked_for(self._statements.beats, claims)
        if rows and self._table.heartbeat is not None:
            self._link.clock.saw(rows[0][self._table.heartbeat])
        return {row[self._table.key] for row in rows}

    def held(self, claims: Sequence[Claim]) -> set[Any]:
        """See `BeatDatabase`."""
        return {row[self._table.key] for row in self._asked_for(self._statements.holds, claims)}

    def _asked_for(self, requests: Requests, claims: Sequence[Claim]) -> list[Body]:
        groups = by_fence(claims)
        return self._rows(one for group in groups for one in requests(group[0], [claim.key for claim in group]))

    def rescue(self, row: Any = None) -> list[tuple[Any, str]]:
        """See `BeatDatabase`."""
        rows = list(self.stale(RESCUE_LIMIT).values()) if row is None else [row]
        changed = self._rows(self._statements.rescues(rows))
        return [(one[self._table.key], one[self._table.status]) for one in changed]

    def stale(self, limit: int) -> dict[Any, Body]:
        """See `BeatDatabase`."""
        clock, limit_s = self._link.clock, self._table.stale_after_s
        if clock.is_sure:
            self._seen.clear()
            rows = self._rows([self._statements.stale(clock.now() - timedelta(seconds=limit_s), limit)])
            return {row[self._table.key]: row for row in rows}
        rows, now_s = self._rows([self._statements.stale(None, limit)]), monotonic_s()
        last, self._seen = self._seen, {}
        for row in rows:
            key, sign = row[self._table.key], self._statements.heard_at(row)
            last_sign, since_s = last.get(key, (sign, now_s))
            self._seen[key] = (sign, since_s if sign == last_sign else now_s)
        return {row[self._table.key]: row for row in rows if self._is_silent(row, now_s - limit_s)}

    def _is_silent(self, row: Body, since_s: float) -> bool:
        sign, seen_s = self._seen[row[self._table.key]]
        return sign is not None and seen_s <= since_s

    def _rows(self, requests: Iterable[Request]) -> list[Body]:
        """Send the requests and return the rows of all answers."""

        async def ask() -> list[list[Body]]:
            if self._http is None:
                self._http = Http(self._link)
            return await asyncio.gather(*map(self._http.rows, requests))

        return [row for rows in self._runner.run(ask()) for row in rows]

    def close(self) -> None:
        """See `BeatDatabase`."""
        try:
            if self._http is not None:
                self._runner.run(self._http.close())
        finally:
            self._runner.close()
