"""SqliteHealth: the records of services in the file, see `stores/health.py`.

Writes go through the store's writer and share its commits; reads go through its reader, each in one snapshot.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.lane import Op
from everpoll.policy import Availability, Rollup
from everpoll.stores.health import (
    KEPT,
    RECENT_LIMIT,
    Bucket,
    DependencyInfo,
    EdgePage,
    ErrorEntry,
    LatencyPoint,
    Look,
    LookPoint,
    MaintenanceWindow,
    NewLook,
    Retention,
    Step,
)
from everpoll.stores.health_answers import check_limit, history_request
from everpoll.stores.health_batches import batch_of, size_of_batch
from everpoll.stores.health_limits import check_name, check_names, dependency_name, milliseconds
from everpoll.stores.health_ranges import buckets_of, for_buckets, for_summary, summary_of
from everpoll.stores.health_settings import HealthSettings
from everpoll.stores.operations import LogEntry
from everpoll.stores.sqlite import feed, health_figures, health_reading, health_recording, health_upkeep

T = TypeVar("T")

ALIASES = "select alias, canonical from everpoll_health_aliases order by alias"
SET_ALIAS = "replace into everpoll_health_aliases (alias, canonical) values (?, ?)"
DELETE_ALIAS = "delete from everpoll_health_aliases where alias = ?"
WINDOWS = "select id, body from everpoll_health_windows order by id"
SET_WINDOW = "replace into everpoll_health_windows (id, body) values (?, ?)"
DELETE_WINDOW = "delete from everpoll_health_windows where id = ?"


class Write(Protocol):
    """How the store writes."""

    def __call__(self, op: Op[T], /) -> Awaitable[T]:
        """Run an operation in a transaction."""


class Read(Protocol):
    """How the store reads."""

    def __call__(self, run: Callable[[Connection], T], /) -> Awaitable[T]:
        """Run a function in a snapshot."""


class SqliteHealth(HealthSettings):
    """Records in tables of the store's file."""

    set_alias_sql, delete_alias_sql = SET_ALIAS, DELETE_ALIAS
    set_window_sql, delete_window_sql = SET_WINDOW, DELETE_WINDOW

    def __init__(self, write: Write, read: Read, now: Callable[[], int]) -> None:
        self._now = now
        self._write = write
        self._read = read

    async def record(self, looks: Sequence[NewLook]) -> None:
        """See the contract."""
        batch = batch_of(looks)
        if batch:
            await self._write(Op(lambda con: health_recording.record(con, batch), size=size_of_batch(batch)))

    async def looks(self, service: str, from_at: float, to_at: float, limit: int = 1000) -> list[Look]:
        """See the contract."""
        wanted = history_request(from_at, to_at, limit)
        return await self._about(service, lambda con, known: health_reading.looks(con, known, wanted)) or []

    async def last_looks(self, services: Sequence[str], n: int) -> dict[str, list[LookPoint]]:
        """See the contract."""
        check_limit("n", n, RECENT_LIMIT)
        check_names(services)
        return await self._read(lambda con: health_reading.last_looks(con, services, n)) if services else {}

    async def dependencies(self, service: str) -> list[DependencyInfo]:
        """See the contract."""
        return await self._about(service, health_reading.dependencies) or []

    async def edges(self, after: tuple[str, str] | None = None, limit: int = 1000) -> EdgePage:
        """See the contract."""
        check_limit("limit", limit)
        return await self._read(lambda con: health_reading.edges(con, after or ("", ""), limit))

    async def errors(self, service: str, dependency: str, limit: int = 100) -> list[ErrorEntry]:
        """See the contract."""
        check_limit("limit", limit)
        name = dependency_name(dependency)
        return await self._about(service, lambda con, known: health_reading.errors(con, known, name, limit)) or []

    async def latencies(
        self, service: str, dependency: str, from_at: float, to_at: float, limit: int = 1000
    ) -> list[LatencyPoint]:
        """See the contract."""
        name, wanted = dependency_name(dependency), history_request(from_at, to_at, limit)
        return await self._about(service, lambda con, known: health_reading.latencies(con, known, name, wanted)) or []

    async def rollups(self, service: str, step: Step, from_at: float, to_at: float) -> list[Bucket]:
        """See the contract."""
        wanted = for_buckets(step, from_at, to_at)
        found = await self._about(service, lambda con, known: health_figures.found_for(con, known, wanted))
        return [] if found is None else buckets_of(step, wanted, found)

    async def summary(self, service: str, from_at: float, to_at: float) -> Rollup:
        """See the contract."""
        wanted = for_summary(from_at, to_at)
        found = await self._about(service, lambda con, known: health_figures.found_for(con, known, wanted))
        return Rollup() if found is None else summary_of(wanted, found)

    async def availability(self, services: Sequence[str], from_at: float) -> dict[str, Availability]:
        """See the contract."""
        check_names(services)
        return await self._read(lambda con: health_figures.availability(con, services, from_at)) if services else {}

    async def aliases(self) -> dict[str, str]:
        """See the contract."""
        return dict(await self._read(lambda con: con.execute(ALIASES).fetchall()))

    async def windows(self) -> list[MaintenanceWindow]:
        """See the contract."""
        rows = await self._read(lambda con: con.execute(WINDOWS).fetchall())
        return [MaintenanceWindow(window_id, msgspec.json.decode(body)) for window_id, body in rows]

    async def _set(self, statement: str, values: tuple[str, ...], entry: LogEntry | None) -> bool:
        """Make a change, and write its entry in the same transaction."""

        def write(con: Connection) -> bool:
            is_changed = con.execute(statement, values).rowcount > 0
            if is_changed and entry is not None:
                feed.log(con, self._now(), [entry])
            return is_changed

        return await self._write(Op(write, size=sum(map(len, values))))

    async def forget(self, service: str) -> bool:
        """See the contract. Whatever is left of it after a crash in the middle goes by its age."""
        check_name("service", service)
        known = await self._write(Op(lambda con: health_upkeep.forget(con, service)))
        if known is None:
            return False
        for table in health_upkeep.BUCKETS:
            await self._forget_buckets(known, table)
        return True

    async def _forget_buckets(self, known: int, table: str) -> None:
        places = await self._read(lambda con: health_upkeep.places(con, table))
        for start in range(places.start, places.stop, health_upkeep.STEP_ROWS):
            some = range(start, min(places.stop, start + health_upkeep.STEP_ROWS))
            await self._forget_some(known, table, some)

    async def _forget_some(self, known: int, table: str, some: range) -> None:
        await self._write(Op(lambda con: health_upkeep.forget_some(con, known, table, some)))

    async def roll_up(self, until: float, after: int = 0) -> int | None:
        """See the contract."""
        until_ms = milliseconds(until)
        more = await self._write(Op(lambda con: health_upkeep.roll_up_some(con, until_ms, after)))
        if more is None:
            while await self._write(Op(health_upkeep.sweep)):
                pass
        return more

    async def prune(self, now: float, retention: Retention = KEPT) -> bool:
        """See the contract."""
        return await self._write(Op(lambda con: health_upkeep.prune(con, now, retention)))

    def _about(self, service: str, run: Callable[[Connection, int], T]) -> Awaitable[T | None]:
        """Read about a service; None if it is not known."""
        check_name("service", service)

        def read(con: Connection) -> T | None:
            known = health_reading.service_id(con, service)
            return None if known is None else run(con, known)

        return self._read(read)
