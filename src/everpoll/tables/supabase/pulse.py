"""The heartbeat over HTTP: in its own thread, on an event loop and connections of its own.

Promises: rows in our hands get a sign of life, by the database's clock; those that are not in our hands any more are
told. Rows of which nobody gave a sign of life for too long are taken back, each only if nothing happened to it since it
was looked at, so two workers that find the same row take it back once.

How old a sign of life is, is judged by the database's time as far as it is known (`DatabaseClock`). Where it is not
known, a row counts as lost only after this process itself has seen the same sign of life for the whole limit.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from everpoll.stores.contract import Beat
from everpoll.tables.claims import Claims
from everpoll.tables.supabase.clock import monotonic_s
from everpoll.tables.supabase.fenced import FencedWrites, Versions, Write
from everpoll.tables.supabase.http import Http, Link
from everpoll.tables.supabase.statements import NOW, Body, HttpClaim, Statements

RESCUE_LIMIT = 500
"""Rows that one beat takes back; the next one takes the rest."""
CLOSE_S = 1.0
LOST = "its worker gave no sign of life for too long"


class SupabasePulse:
    """Made and used in the heartbeat's thread."""

    def __init__(self, link: Link, statements: Statements, claims: Claims, versions: Versions) -> None:
        self._link = link
        self._statements = statements
        self._claims = claims
        self._versions = versions
        self._http: Http | None = None
        self._runner = asyncio.Runner()
        self._seen: dict[object, tuple[object, float]] = {}
        """By key: the sign of life of a row, and since when it is the same; kept only where no clock can be trusted."""

    def beat(self, incarnation: int, lease_s: float, overdue_s: float | None, running: Sequence[int]) -> Beat:
        """A sign of life for rows in our hands, and a look at those of others."""
        return self._runner.run(self._beat(running))

    def close(self) -> None:
        """Let go of the connections."""
        try:
            if self._http is not None:
                self._runner.run(self._http.close())
        finally:
            self._runner.close()

    async def _beat(self, running: Sequence[int]) -> Beat:
        if self._http is None:
            self._http = Http(self._link)
        held = self._claims.held(running)
        table = self._statements.table
        body = {} if table.heartbeat is None else {table.heartbeat: NOW}
        writes = [Write(number, claim, body) for number, claim in held.items() if isinstance(claim, HttpClaim)]
        rows = FencedWrites(self._http, self._statements, self._link.clock, self._versions)
        if table.heartbeat is None:
            gone = {one.number for one in writes} - {one.number for one in await rows.held(writes)}
        else:
            gone = await rows.write(writes, set())
        # What was settled while we asked is no row that somebody took away.
        gone &= set(self._claims.held(gone))
        return Beat(is_alive=True, rescued=await self._rescued(self._http), canceled=tuple(gone))

    async def _rescued(self, http: Http) -> int:
        if self._statements.table.heartbeat is None:
            return 0
        rows = await self._stale(http)
        requests = self._statements.rescues(rows, LOST)
        return sum(map(len, await asyncio.gather(*map(http.rows, requests))))

    async def _stale(self, http: Http) -> list[Body]:
        table, clock = self._statements.table, self._link.clock
        if clock.is_sure:
            self._seen.clear()
            before = clock.now() - timedelta(seconds=table.stale_after_s)
            return await http.rows(self._statements.stale(before, RESCUE_LIMIT))
        rows = await http.rows(self._statements.stale(None, RESCUE_LIMIT))
        now_s = monotonic_s()
        last, self._seen = self._seen, {}
        for row in rows:
            key, sign = row[table.key], row[str(table.heartbeat)]
            before_sign, since_s = last.get(key, (sign, now_s))
            self._seen[key] = (sign, since_s if sign == before_sign else now_s)
        return [row for row in rows if now_s - self._seen[row[table.key]][1] >= table.stale_after_s]
