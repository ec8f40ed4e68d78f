"""Settling over HTTP: each row by its fence, rows with the same end by one PATCH.

Promises: a row that this worker no longer holds is left as it is and reported as lost. HTTP cannot increment a version,
so the new number is written if the old one is unchanged; if another program has raised it, it is read and the write
tried again. Only with the functions in the database is a batch one transaction. Without them a part may fail while the
rest is written; the next try of the batch does not repeat what was written.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.stores.contract import Settlement
from everpoll.tables.claims import Claim, by_fence
from everpoll.tables.outcome import written
from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.filters import portions
from everpoll.tables.supabase.functions import CLOCK, ROWS, Functions
from everpoll.tables.supabase.http import Http
from everpoll.tables.supabase.statements import Body, HttpClaim, Statements

ROUNDS = 10
"""How often the version is read and written; a round fails if another program changes the row in between."""
CALL_LIMIT = 4 * 1024 * 1024
"""The largest body of one call, in bytes."""


class Write(Struct, eq=False):
    """What one settlement writes into its row."""

    number: int
    claim: HttpClaim
    body: Body
    version: int | None


class Settling:
    """The settlements of one table in this process."""

    def __init__(self, http: Http, statements: Statements, clock: DatabaseClock, functions: Functions | None) -> None:
        self._http = http
        self._statements = statements
        self._table = statements.table
        self._clock = clock
        self._functions = functions
        self._done: set[int] = set()
        """Settled by a batch of which another part failed."""

    async def settle(self, settlements: Sequence[Settlement], claims: Mapping[int, Claim]) -> set[int]:
        """Write the settlements; return the numbers of the claims that were lost."""
        writes = [
            self._write(one, claim)
            for one in settlements
            if isinstance(claim := claims.get(one.id), HttpClaim) and one.id not in self._done
        ]
        await self._write_all(writes)
        settled = self._done & claims.keys()
        self._done -= settled
        return claims.keys() - settled

    async def states(self, keys: Sequence[Any]) -> dict[Any, Sequence[Any]]:
        """Read these rows as they are now: status, worker and start."""
        table = self._table
        rows: dict[Any, Sequence[Any]] = {}
        for request in self._statements.states(keys):
            for row in await self._http.rows(request):
                rows[row[table.key]] = [row[table.status], row[table.worker], row[table.started_at]]
        return rows

    def _write(self, settlement: Settlement, claim: HttpClaim) -> Write:
        write = written(self._table, settlement)
        body = self._statements.settled(write, claim, self._due_at(write.delay_s))
        return Write(settlement.id, claim, body, claim.version)

    def _due_at(self, delay_s: float | None) -> datetime | None:
        if delay_s is None:
            return None
        now = self._clock.now()
        try:
            return now + timedelta(seconds=delay_s)
        except OverflowError:
            return datetime.max.replace(tzinfo=now.tzinfo)

    async def _write_all(self, writes: Sequence[Write]) -> None:
        """Write as much as possible. `_done` then has what was written, even if this raises."""
        if self._functions is not None:
            await self._call(self._functions.settle, writes)
            return
        for _ in range(ROUNDS):
            groups: dict[tuple[Any, ...], list[Write]] = {}
            for one in writes:
                same = (msgspec.json.encode(one.body), one.claim.worker, one.claim.started_at, one.version)
                groups.setdefault(same, []).append(one)
            await _all(self._write_alike(group) for group in groups.values())
            writes = [one for one in writes if one.number not in self._done]
            if not writes or self._table.guard != "version":
                return
            writes = await self._read_versions(writes)

    async def _call(self, function: str, writes: Sequence[Write]) -> None:
        """Write all by one call, which is one transaction; by several calls if they are too large for one."""
        numbers = {one.claim.key: one.number for one in writes}
        for part in portions(writes, lambda one: len(msgspec.json.encode(one.body)), CALL_LIMIT):
            arguments = {"writes": [{"fence": self._fence(one.claim), "body": one.body} for one in part]}
            answer: dict[str, Any] = await self._http.answer(self._statements.call(function, arguments))
            self._clock.saw(answer[CLOCK])
            self._done.update(numbers[key] for key in answer[ROWS])

    def _fence(self, claim: HttpClaim) -> Body:
        table = self._table
        return {table.key: claim.key, table.worker: claim.worker, table.started_at: claim.started_at}

    async def _write_alike(self, group: Sequence[Write]) -> None:
        """Write the same into rows of one claim that have the same version."""
        first, finished_at = group[0], self._table.finished_at
        numbers = {one.claim.key: one.number for one in group}
        for request in self._statements.settles(first.claim, first.version, list(numbers), first.body):
            for row in await self._http.rows(request):
                self._done.add(numbers[row[self._table.key]])
                if finished_at is not None:
                    self._clock.saw(row.get(finished_at))

    async def _read_versions(self, writes: Sequence[Write]) -> list[Write]:
        """Return the writes whose rows this worker still holds, with the rows' present version."""
        found: dict[Any, int | None] = {}
        for group in by_fence(one.claim for one in writes):
            for request in self._statements.holds(group[0], [claim.key for claim in group]):
                rows = await self._http.rows(request)
                found.update({row[self._table.key]: row[self._table.version] for row in rows})
        held = [one for one in writes if one.claim.key in found]
        for one in held:
            one.version = found[one.claim.key]
        return held


async def _all(requests: Iterable[Any]) -> None:
    """Await all requests, even if some fail; then raise the first error."""
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
