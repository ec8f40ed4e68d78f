"""The stage on which adopted tables play: a database with a user's own table in it, and everpoll beside it.

What a test does as the user goes by plain SQL of the database itself, never through the code under test: `create`,
`insert`, `rows`, `change`, `age`. What it does as everpoll goes through `Claimer` (a source, one call at a time) or
`working` (an app with a handler), or in other processes through `crew`. A database joins the suite with one subclass
and one line in `conftest.STAGES`.
"""

import asyncio
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

from everpoll import Everpoll
from everpoll.policy import Backoff
from everpoll.stores.contract import (
    Again,
    Beat,
    Ended,
    EndState,
    HeartbeatConnection,
    Leased,
    Settlement,
    WorkerCard,
    encode,
)
from everpoll.tables import AdoptedTable, Guard, Row, Table
from everpoll.tables.row import RowLease
from everpoll.tables.source import TableSource
from everpoll.tables.urls import source_for

Kind = Literal["number key", "uuid key", "text key", "text", "number", "count", "decimal", "instant", "since", "json"]
"""What a column holds. `count` is never empty and begins at 0; `since` begins as the instant of the insert."""

JOBS: dict[str, Kind] = {
    "id": "number key",
    "status": "text",
    "created_at": "since",
    "worker_id": "text",
    "started_at": "instant",
    "finished_at": "instant",
    "error": "text",
    "last_heartbeat": "instant",
    "retry_count": "count",
    "priority": "count",
    "due_at": "instant",
    "version": "count",
    "updated_at": "since",
    "payload": "text",
    "report": "json",
}
"""A table that has everything."""
MAPPED: dict[str, Any] = {
    "finished_at": "finished_at",
    "error": "error",
    "heartbeat": "last_heartbeat",
    "retries": "retry_count",
    "priority": "priority",
    "due_at": "due_at",
    "canceled": "canceled",
    "columns": ("payload",),
    "results": ("report",),
}
"""And a mapping that uses all of it."""
BARE: dict[str, Kind] = {
    name: JOBS[name] for name in ("id", "status", "created_at", "worker_id", "started_at", "payload")
}
"""As the document has it: what the claim needs, and nothing else."""
QUICK = Backoff("20ms", factor=1, cap="20ms", jitter=0)
GIVE_UP_S = 25.0
LOOK_S = 0.01
HOUR_S = 3600.0

_incarnations = itertools.count(2**62 + 1)


class TableStage(ABC):
    """One database, empty at first."""

    name: str
    guards: tuple[Guard, ...] = ("skip_locked", "status", "version", "timestamp")
    """Those that it can do."""
    has_processes = True
    """Whether several processes may work on it at once."""
    has_trigger_push = True
    """Whether `TableSource.ddl()` offers what makes an insert wake a worker."""
    url: str
    token: str | None = None

    @abstractmethod
    async def execute(self, sql: str) -> None:
        """A statement of the database's own."""

    @abstractmethod
    async def create(self, columns: Mapping[str, Kind] = JOBS, table: str = "jobs") -> None:
        """An empty table, without indexes but for its key."""

    @abstractmethod
    async def insert(self, *rows: Mapping[str, Any], table: str = "jobs") -> None:
        """In that order; columns that are not named have their default."""

    @abstractmethod
    async def rows(self, table: str = "jobs", key: str = "id") -> list[dict[str, Any]]:
        """All of them, by key; instants are aware datetimes, JSON is decoded, a uuid is a text."""

    @abstractmethod
    async def change(self, key: Any, table: str = "jobs", **values: Any) -> None:
        """Set columns of one row, as its owner does."""

    @abstractmethod
    async def age(self, seconds: float, *columns: str, table: str = "jobs") -> None:
        """Move instants into the past: as if that much time had gone by since."""

    @abstractmethod
    async def cut_connections(self) -> None:
        """Break every connection to it, as a restarted server would; where there is none, do nothing."""

    @abstractmethod
    async def close(self) -> None:
        """After the test."""

    async def queue(self, *keys: Any, table: str = "jobs", **values: Any) -> None:
        """Rows that wait, the first the oldest, all with these values."""
        await self.insert(*({"id": key, "status": "queued", **values} for key in keys), table=table)

    async def one(self, key: Any, table: str = "jobs", column: str = "id") -> dict[str, Any]:
        """One row."""
        [row] = [row for row in await self.rows(table, column) if row[column] == key]
        return row

    async def statuses(self, table: str = "jobs") -> dict[Any, str]:
        """By id."""
        return {row["id"]: row["status"] for row in await self.rows(table)}

    def mapping(self, table: str = "jobs", **options: Any) -> Table:
        """Everything mapped, but for what the test says."""
        return Table(table, **{**MAPPED, **options})

    def bare(self, table: str = "jobs", **options: Any) -> Table:
        """Nothing mapped that may be missing."""
        return Table(table, **{"columns": ("payload",), **options})

    async def prepare(self, mapping: Table) -> None:  # noqa: B027 - most have nothing to do
        """Statements that the owner of the database runs before the mapping can be opened; mostly none."""

    def source(self, mapping: Table) -> TableSource[Any, Any]:
        """Not open yet."""
        return source_for(self.url, mapping, self.token)

    @contextlib.asynccontextmanager
    async def claimer(self, mapping: Table | None = None, label: str = "worker-1") -> AsyncIterator["Claimer"]:
        """A worker without an engine: one call at a time."""
        mapping = self.mapping() if mapping is None else mapping
        await self.prepare(mapping)
        source = self.source(mapping)
        await source.open()
        claimer = Claimer(source, label)
        try:
            await claimer.sign_on()
            yield claimer
        finally:
            claimer.close()
            await source.close()

    def adopt(self, app: Everpoll, mapping: Table, *, slots: int = 4, poll: Backoff | None = QUICK) -> AdoptedTable:
        """On an app; a poller that rests for milliseconds only, unless `poll` is None."""
        adopted = app.table(mapping, slots=slots, url=self.url, token=self.token)
        if poll is not None:
            adopted._options = replace(adopted._options, poll=poll, safety_poll=poll)
        return adopted

    @contextlib.asynccontextmanager
    async def working(
        self,
        handler: Callable[[Row], Any],
        mapping: Table | None = None,
        *,
        slots: int = 4,
        poll: Backoff | None = QUICK,
    ) -> AsyncIterator["Working"]:
        """An app that runs the table's rows for the length of the block."""
        app = Everpoll("memory://")
        mapping = self.mapping() if mapping is None else mapping
        await self.prepare(mapping)
        adopted = self.adopt(app, mapping, slots=slots, poll=poll)
        adopted.handler(handler)
        async with app:
            yield Working(self, app, adopted)

    async def until(self, holds: Callable[[list[dict[str, Any]]], bool], table: str = "jobs") -> list[dict[str, Any]]:
        """Wait until the rows are so; the rows."""
        rows: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(GIVE_UP_S):
                while not holds(rows := await self.rows(table)):  # noqa: ASYNC110 - others change the table
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"not within {GIVE_UP_S:g} s: {rows[:5]} …") from None
        return rows

    async def until_all(self, *statuses: str, table: str = "jobs") -> list[dict[str, Any]]:
        """Wait until every row has one of these statuses."""
        return await self.until(lambda rows: all(row["status"] in statuses for row in rows), table)


@dataclass(frozen=True, slots=True)
class Working:
    """An app at work."""

    stage: TableStage
    app: Everpoll
    adopted: AdoptedTable


class Claimer:
    """The moves of one worker."""

    def __init__(self, source: TableSource[Any, Any], label: str) -> None:
        self.source = source
        self.label = label
        self.incarnation = next(_incarnations)
        self._heartbeat: HeartbeatConnection | None = None
        # A heartbeat has a thread of its own, always the same one: some connections insist on that.
        self._heart = ThreadPoolExecutor(1, "heart")

    async def sign_on(self) -> None:
        """As a worker does before its first look."""
        card = WorkerCard(
            incarnation=self.incarnation, label=self.label, host="here", pid=1, queues=("jobs",), slots=10, version="0"
        )
        await self.source.sign_on(card, HOUR_S)

    async def look(self, most: int = 100) -> Leased:
        """One look."""
        return await self.source.lease(self.incarnation, {"jobs": most}, most)

    async def take(self, most: int = 100) -> list[RowLease]:
        """What a look brings, in order."""
        return [lease for lease in (await self.look(most)).leases if isinstance(lease, RowLease)]

    async def take_one(self) -> RowLease:
        """The next one."""
        [lease] = await self.take(1)
        return lease

    async def settle(self, *settlements: Settlement) -> set[int]:
        """The ids that were lost."""
        return await self.source.settle(self.incarnation, settlements)

    async def end(self, *leases: RowLease, state: EndState = "done", **results: Any) -> set[int]:
        """Each has ended; a failure says so as the engine does."""
        note = None if state == "done" else encode({"what": state, "error": "it broke", "type": "Boom"})
        result = encode(results) if results else None
        return await self.settle(*(Ended(one.id, one.sequence, state, result, note) for one in leases))

    async def hand_back(self, *leases: RowLease) -> set[int]:
        """As a shutdown does."""
        note = encode({"what": "hand-back", "why": "its worker shuts down"})
        return await self.settle(*(Again(one.id, one.sequence, None, refund=True, note=note) for one in leases))

    async def retry(self, *leases: RowLease, delay_s: float | None = None) -> set[int]:
        """As a failed attempt does."""
        note = encode({"what": "retry", "error": "it broke", "type": "Boom"})
        return await self.settle(*(Again(one.id, one.sequence, delay_s, note=note) for one in leases))

    async def beat(self, *leases: RowLease) -> Beat:
        """A heartbeat, from its own thread, with these in hand."""

        def beat() -> Beat:
            self._heartbeat = self._heartbeat or self.source.heartbeat_connection()
            return self._heartbeat.beat(self.incarnation, HOUR_S, [one.id for one in leases])

        return await asyncio.get_running_loop().run_in_executor(self._heart, beat)

    def close(self) -> None:
        """Let go of the heartbeat."""
        if self._heartbeat is not None:
            self._heart.submit(self._heartbeat.close).result()
        self._heart.shutdown()


def keys(leases: Sequence[RowLease]) -> list[Any]:
    """The rows' own keys, in order."""
    return [one.row_key for one in leases]
