"""Settling over HTTP: each row by its fence, rows with the same end by one PATCH.

Promises: a row that this worker no longer holds is left as it is and reported as lost. HTTP cannot increment a version,
so the new number is written if the old one is unchanged; if another program has raised it, it is read and the write
tried again. Only with the functions in the database is a batch one transaction. Without them a part may fail while the
rest is written; the next try of the batch does not repeat what was written.
"""

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from everpoll.drivers.postgrest.filters import portions
from everpoll.drivers.postgrest.http import Http
from everpoll.tables.claims import grouped, last_claims
from everpoll.tables.settling import Settled
from everpoll.tables.supabase.statements import Body, Statements, http_claim

ROUNDS = 10
"""How often the version is read and written; a round fails if another program changes the row in between."""
CALL_LIMIT = 4 * 1024 * 1024
"""The largest body of one call, in bytes."""


class Settling:
    """The settlements of one table in this process."""

    def __init__(self, http: Http, statements: Statements) -> None:
        self._http = http
        self._statements = statements
        self._done: set[int] = set()
        """Settled by a batch of which another part failed."""

    async def settle(self, batch: Sequence[Settled]) -> set[int]:
        """Write the batch; return the numbers of the claims that were lost."""
        left = [one for one in batch if one.number not in self._done]
        if self._statements.functions is None:
            await self._write_all(left)
        else:
            await self._call(self._statements.functions.settle, left)
        numbers = {one.number for one in batch}
        lost = numbers - self._done
        self._done -= numbers
        return lost

    async def _write_all(self, batch: Sequence[Settled]) -> None:
        """Write as much as possible. `_done` then has what was written, even if this raises."""
        now = self._http.clock.now()

        def alike(one: Settled) -> Hashable:
            body, claim = msgspec.json.encode(self._statements.settled(one, now)), http_claim(one.claim)
            return body, claim.worker, claim.started_at, claim.version

        for _ in range(ROUNDS):
            groups = grouped(batch, alike)
            await _all(self._write_alike(group, self._statements.settled(group[0], now)) for group in groups)
            batch = [one for one in batch if one.number not in self._done]
            if not batch or self._statements.table.guard != "version":
                return
            batch = await self._in_present_version(batch)

    async def _call(self, function: str, batch: Sequence[Settled]) -> None:
        """Write all by one call, which is one transaction; by several calls if they are too large for one."""
        table, now = self._statements.table, self._http.clock.now()
        numbers = last_claims((one.number, one.claim) for one in batch)
        writes = []
        for one in batch:
            claim = one.claim
            fence = {table.key: claim.key, table.worker: claim.worker, table.started_at: claim.started_at}
            writes.append({"fence": fence, "body": self._statements.settled(one, now)})
        for part in portions(writes, lambda one: len(msgspec.json.encode(one["body"])), CALL_LIMIT):
            changed = await self._http.called(self._statements.call(function, {"writes": part}))
            self._done.update(numbers[key] for key in changed)

    async def _write_alike(self, group: Sequence[Settled], body: Body) -> None:
        """Write the same into rows of one claim that have the same version."""
        numbers = {one.claim.key: one.number for one in group}
        for request in self._statements.settles(group[0].claim, list(numbers), body):
            self._done.update(numbers[key] for key, *_ in await self._http.rows(request))

    async def _in_present_version(self, batch: Sequence[Settled]) -> list[Settled]:
        """Return those whose rows this worker still holds, with the rows' present version."""
        found: dict[Any, int | None] = {}
        for request in self._statements.holds([one.claim for one in batch]):
            found |= {row[0]: row[1] for row in await self._http.rows(request)}
        return [
            replace(one, claim=replace(one.claim, version=found[one.claim.key]))
            for one in batch
            if one.claim.key in found
        ]


async def _all(requests: Iterable[Any]) -> None:
    """Await all requests, even if some fail; then raise the first error."""
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
