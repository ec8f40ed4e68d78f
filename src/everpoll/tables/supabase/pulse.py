"""The heartbeat over HTTP: in its own thread, on an event loop and connections of its own.

Promises: the rows that this worker holds get a heartbeat, by the database's clock; those that it holds no longer are
reported. Rows without a heartbeat for too long are taken back, each only if nothing happened to it since it
was looked at, so two workers that find the same row take it back once. A row that the table refuses to have changed
costs the others neither.

How old a sign of life is, is judged by the database's time as far as it is known (`DatabaseClock`). Where it is not
known, a row counts as lost only after this process itself has seen the same sign of life for the whole limit.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.stores.contract import Beat, Rescued
from everpoll.tables.claims import Claim, Claims
from everpoll.tables.outages import Outages
from everpoll.tables.refusals import Refusals
from everpoll.tables.supabase import faults
from everpoll.tables.supabase.clock import monotonic_s
from everpoll.tables.supabase.http import Http, Link
from everpoll.tables.supabase.statements import Body, Statements

logger = logging.getLogger("everpoll.tables")

RESCUE_LIMIT = 500
"""Rows that one beat takes back; the next one takes the rest."""


class SupabasePulse:
    """Made and used in the heartbeat's thread."""

    def __init__(self, link: Link, statements: Statements, claims: Claims, outages: Outages) -> None:
        self._link = link
        self._statements = statements
        self._table = statements.table
        self._claims = claims
        self._outages = outages
        self._http: Http | None = None
        self._unbeaten = Refusals(statements.table.name, "kept alive")
        self._unrescued = Refusals(statements.table.name, "handed back")
        self._runner = asyncio.Runner()
        self._seen: dict[Any, tuple[str | None, float]] = {}
        """By key: the sign of life of a row, and since when it is the same; kept only where no clock can be trusted."""

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract. No worker of a table is declared dead as a whole: each row is lost by itself."""
        del incarnation, dead, overdue
        return Rescued()

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """A sign of life for the rows that this worker holds, and a look at those of others."""
        del incarnation, lease_s
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
        gone = await self._gone(self._http, running)
        may_rescue = self._outages.heard() and self._table.heartbeat is not None
        back = await self._rescued(self._http) if may_rescue else 0
        return Beat(is_alive=True, rescued=back, canceled=gone)

    async def _gone(self, http: Http, running: Sequence[int]) -> tuple[int, ...]:
        """Those of our rows that are ours no more; the others were given a sign of life."""
        held = self._claims.held(running)
        groups: dict[tuple[str, Any], list[Claim]] = {}
        for claim in held.values():
            groups.setdefault((claim.worker, claim.started_at), []).append(claim)
        ours: set[Any] = set()
        for part in await asyncio.gather(*(self._heard(http, claims) for claims in groups.values())):
            ours |= part
        # What was settled meanwhile is not ours any more either, and not gone.
        return tuple(number for number, claim in self._claims.held(held).items() if claim.key not in ours)

    async def _heard(self, http: Http, claims: list[Claim]) -> set[Any]:
        """Of claims with one fence, the keys of those that still hold."""
        try:
            return await self._beaten(http, claims)
        except faults.REFUSED as error:
            if not faults.is_about_a_row(error):
                raise
        held: set[Any] = set()
        for request in self._statements.holds(claims[0], [claim.key for claim in claims]):
            held |= {row[self._table.key] for row in await http.rows(request)}
        refused = self._unbeaten.known()
        for claim in claims:
            if claim.key in held and claim.key not in refused:
                try:
                    await self._beaten(http, [claim])
                except faults.REFUSED as error:
                    self._unbeaten.add(claim.key, error)
        return held

    async def _beaten(self, http: Http, claims: list[Claim]) -> set[Any]:
        ours: set[Any] = set()
        requests = self._statements.beats(claims[0], [claim.key for claim in claims])
        for rows in await asyncio.gather(*map(http.rows, requests)):
            ours.update(row[self._table.key] for row in rows)
            if rows and self._table.heartbeat is not None:
                self._link.clock.saw(rows[0][self._table.heartbeat])
        return ours

    async def _rescued(self, http: Http) -> int:
        """Rows of silent workers wait again, or have failed; how many wait.

        Where that is refused, our own sign of life still has been given: the beat has not failed.
        """
        try:
            rows = await self._stale(http)
            changed = await self._taken_back(http, rows)
        except StoreUnavailable:
            raise
        except EverpollError as error:
            logger.warning("table %s: cannot take back rows of silent workers: %s", self._table.name, error)
            return 0
        return sum(row[self._table.status] == self._table.queued for part in changed for row in part)

    async def _taken_back(self, http: Http, rows: list[Body]) -> list[list[Body]]:
        refused = self._unrescued.known()
        rows = [row for row in rows if row[self._table.key] not in refused]
        try:
            return await asyncio.gather(*map(http.rows, self._statements.rescues(rows)))
        except faults.REFUSED as error:
            if not faults.is_about_a_row(error):
                raise
        changed: list[list[Body]] = []
        for row in rows:
            try:
                changed += [await http.rows(request) for request in self._statements.rescues([row])]
            except faults.REFUSED as error:
                self._unrescued.add(row[self._table.key], error)
        return changed

    async def _stale(self, http: Http) -> list[Body]:
        clock, limit_s = self._link.clock, self._table.stale_after_s
        if clock.is_sure:
            self._seen.clear()
            return await http.rows(self._statements.stale(clock.now() - timedelta(seconds=limit_s), RESCUE_LIMIT))
        rows = await http.rows(self._statements.stale(None, RESCUE_LIMIT))
        now_s = monotonic_s()
        last, self._seen = self._seen, {}
        for row in rows:
            key, sign = row[self._table.key], self._statements.heard_at(row)
            last_sign, since_s = last.get(key, (sign, now_s))
            self._seen[key] = (sign, since_s if sign == last_sign else now_s)
        return [row for row in rows if self._is_silent(row, now_s - limit_s)]

    def _is_silent(self, row: Body, since_s: float) -> bool:
        sign, seen_s = self._seen[row[self._table.key]]
        return sign is not None and seen_s <= since_s
