"""Settling over HTTP: each row by its fence, rows that end alike by one PATCH.

Promises: a row that this worker no longer holds is left as it is and reported as lost. A version, which HTTP cannot
raise by one, is written whole, under the condition that it is as it was; where another program has raised it, it is
read and tried again. A batch is one transaction only with the functions in the database. Without them, where a part of
it fails, the rest has happened, and is not repeated when the batch is tried again.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.stores.contract import Settlement
from everpoll.tables.claims import Claims
from everpoll.tables.outcome import RowWrite, is_as_left, written
from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.functions import CLOCK, ROWS, Functions
from everpoll.tables.supabase.http import Http
from everpoll.tables.supabase.statements import Body, HttpClaim, Statements

ROUNDS = 10
"""Of reading the version and writing; a round fails when another program changed that row in between."""
CALL_LIMIT = 4 * 1024 * 1024
"""In bytes, of what one call writes."""
REMEMBERED = 2_000
"""Claims that are over, to find out later whether this worker ended them."""


class Write(Struct, eq=False):
    """What is to be written into one row."""

    number: int
    claim: HttpClaim
    body: Body
    version: int | None


class Settling:
    """The settlements of one table in this process."""

    def __init__(
        self, http: Http, statements: Statements, claims: Claims, clock: DatabaseClock, functions: Functions | None
    ) -> None:
        self._http = http
        self._statements = statements
        self._table = statements.table
        self._claims = claims
        self._clock = clock
        self._functions = functions
        self._done: set[int] = set()
        """Settled by a batch of which another part failed."""
        self._past: dict[int, HttpClaim] = {}

    async def settle(self, settlements: Sequence[Settlement]) -> set[int]:
        """Those that were lost."""
        found = self._claims.of(settlements)
        held = {number: claim for number, claim in found.items() if isinstance(claim, HttpClaim)}
        writes = [self._write(one, held[one.id]) for one in settlements if one.id in held and one.id not in self._done]
        await self._write_all(writes)
        lost = {one.id for one in settlements} - self._done
        self._let_go(held)
        self._done.difference_update(one.id for one in settlements)
        return lost

    async def settled_before(self, settlements: Sequence[Settlement]) -> set[int]:
        """Of those that were lost, the ones that stand as this settlement would have left them."""
        claims = {one.id: claim for one in settlements if (claim := self._past.get(one.id)) is not None}
        rows: dict[Any, Body] = {}
        for request in self._statements.states([claim.key for claim in claims.values()]):
            rows.update({row[self._table.key]: row for row in await self._http.rows(request)})
        return {
            one.id
            for one in settlements
            if (claim := claims.get(one.id)) is not None
            and (row := rows.get(claim.key)) is not None
            and self._is_as_left(written(self._table, one), claim, row)
        }

    def _is_as_left(self, write: RowWrite, claim: HttpClaim, row: Body) -> bool:
        table = self._table
        is_ours = (row[table.worker], row[table.started_at]) == (claim.worker, claim.started_at)
        return is_as_left(table, write, row[table.status], is_ours)

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
        """Whatever could be written is in `_done` after that, errors or not."""
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
        """All of them by one call, which is one transaction; more only where they are too large for one."""
        numbers = {one.claim.key: one.number for one in writes}
        for part in _portions(writes):
            arguments = {"writes": [{"fence": self._fence(one.claim), "body": one.body} for one in part]}
            answer: dict[str, Any] = await self._http.answer(self._statements.call(function, arguments))
            self._clock.saw(answer[CLOCK])
            self._done.update(numbers[key] for key in answer[ROWS])

    def _fence(self, claim: HttpClaim) -> Body:
        table = self._table
        return {table.key: claim.key, table.worker: claim.worker, table.started_at: claim.started_at}

    async def _write_alike(self, group: Sequence[Write]) -> None:
        """Rows of one claim, at one version, into which the same is written."""
        first, finished_at = group[0], self._table.finished_at
        numbers = {one.claim.key: one.number for one in group}
        for request in self._statements.settles(first.claim, first.version, list(numbers), first.body):
            for row in await self._http.rows(request):
                self._done.add(numbers[row[self._table.key]])
                if finished_at is not None:
                    self._clock.saw(row.get(finished_at))

    async def _read_versions(self, writes: Sequence[Write]) -> list[Write]:
        """Those whose rows this worker still holds, with their present version."""
        groups: dict[tuple[str, Any], list[Write]] = {}
        for one in writes:
            groups.setdefault((one.claim.worker, one.claim.started_at), []).append(one)
        found: dict[Any, int | None] = {}
        for group in groups.values():
            for request in self._statements.versions(group[0].claim, [one.claim.key for one in group]):
                rows = await self._http.rows(request)
                found.update({row[self._table.key]: row[self._table.version] for row in rows})
        held = [one for one in writes if one.claim.key in found]
        for one in held:
            one.version = found[one.claim.key]
        return held

    def _let_go(self, claims: dict[int, HttpClaim]) -> None:
        self._claims.let_go(claims)
        self._past.update(claims)
        while len(self._past) > REMEMBERED:
            del self._past[next(iter(self._past))]


def _portions(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    start = size = 0
    for index, one in enumerate(writes):
        bytes_ = len(msgspec.json.encode(one.body))
        if size + bytes_ > CALL_LIMIT and index > start:
            yield writes[start:index]
            start, size = index, 0
        size += bytes_
    if start < len(writes):
        yield writes[start:]


async def _all(requests: Iterable[Any]) -> None:
    """All of them, whatever happens to some; then the first error, if there was one."""
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
