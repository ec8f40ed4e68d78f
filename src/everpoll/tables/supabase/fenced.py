"""Writes about rows in our hands: grouped by what is written, each under its fence.

Promises: a row that is not in our hands any more is left as it is, and told as lost. With a version to raise, which
cannot be reckoned over HTTP, each write names the version that it found; where somebody else has raised it meanwhile,
it is read and tried again.
Rows are not written in one transaction. Each request may be repeated: what it wrote is out of the fence's reach.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.http import Http
from everpoll.tables.supabase.statements import NOW, Body, HttpClaim, Statements

ROUNDS = 10
"""Of reading the version and writing; each round that fails was won by somebody else's change of that row."""


class Write(Struct, frozen=True, eq=False):
    """What is to be written into one row."""

    number: int
    claim: HttpClaim
    body: Body


class Versions:
    """The versions that our rows have by our own writes, from whichever thread."""

    def __init__(self) -> None:
        self._raised: dict[int, int] = {}

    def of(self, write: Write) -> int | None:
        """As far as we know."""
        return self._raised.get(write.number, write.claim.version)

    def found(self, number: int, version: int | None) -> None:
        """It was read, or written."""
        self._raised[number] = version or 0

    def forget(self, number: int) -> None:
        """The row is not ours any more."""
        self._raised.pop(number, None)


class FencedWrites:
    """For one table, on the connections of one thread."""

    def __init__(self, http: Http, statements: Statements, clock: DatabaseClock, versions: Versions) -> None:
        self._http = http
        self._statements = statements
        self._clock = clock
        self._versions = versions

    async def write(self, writes: Sequence[Write], done: set[int]) -> set[int]:
        """Write them, and add to `done` as it goes, errors or not; the numbers that were lost."""
        pending = list(writes)
        for _ in range(ROUNDS):
            await self._write_once(pending, done)
            pending = [one for one in pending if one.number not in done]
            if not pending or self._statements.table.guard != "version":
                break
            pending = await self.held(pending)
        # After that many rounds it is still ours, and somebody changes it all the time: the next beat tries again.
        return {one.number for one in writes} - done

    async def held(self, writes: Sequence[Write]) -> list[Write]:
        """Those whose rows still are in our hands; their versions are known after that."""
        table, held = self._statements.table, list[Write]()
        groups: dict[tuple[str, Any], list[Write]] = {}
        for write in writes:
            groups.setdefault((write.claim.worker, write.claim.started_at), []).append(write)
        for group in groups.values():
            requests = self._statements.still_held(group[0].claim, [one.claim.key for one in group])
            for rows in await asyncio.gather(*map(self._http.rows, requests)):
                found = {row[table.key]: row for row in rows}
                for write in group:
                    if (row := found.get(write.claim.key)) is not None:
                        self._versions.found(write.number, row.get(table.version))
                        held.append(write)
        return held

    async def _write_once(self, writes: Sequence[Write], done: set[int]) -> None:
        groups: dict[tuple[Any, ...], list[Write]] = {}
        for write in writes:
            same = (
                msgspec.json.encode(write.body),
                write.claim.worker,
                write.claim.started_at,
                self._versions.of(write),
            )
            groups.setdefault(same, []).append(write)
        tasks = [self._write_alike(group, done) for group in groups.values()]
        failed = [one for one in await asyncio.gather(*tasks, return_exceptions=True) if one is not None]
        if failed:
            raise failed[0]

    async def _write_alike(self, group: Sequence[Write], done: set[int]) -> None:
        """Rows of one claim, with one version, into which the same is written."""
        table, first = self._statements.table, group[0]
        version = self._versions.of(first)
        by_key = {one.claim.key: one.number for one in group}
        for _, request in self._statements.fenced(first.claim, version, list(by_key), first.body):
            for row in await self._http.rows(request):
                number = by_key[row[table.key]]
                done.add(number)
                if table.guard == "version":
                    self._versions.found(number, (version or 0) + 1)
                self._learn(first.body, row)

    def _learn(self, body: Body, row: Body) -> None:
        """What the database wrote as `now` tells its time."""
        for name in (self._statements.table.heartbeat, self._statements.table.finished_at):
            if name is not None and body.get(name) == NOW:
                self._clock.saw(row.get(name))
