"""PostgresHealth: the records of services in the schema `everpoll`, see `stores/health.py`.

flusher ──▶ record ──▶ a lane of its own, beside settlements
server ───▶ reads ───▶ the lane for calls that may take long
upkeep ───▶ roll_up, prune, forget ──▶ another slow lane
"""

from collections.abc import Sequence

import msgspec

from everpoll.drivers.postgres.lane import Lane
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
from everpoll.stores.health_batches import batch_of
from everpoll.stores.health_limits import check_name, check_names, dependency_name, milliseconds
from everpoll.stores.health_ranges import buckets_of, for_buckets, for_summary, summary_of
from everpoll.stores.health_settings import HealthSettings
from everpoll.stores.operations import LogEntry
from everpoll.stores.postgres import health_reading, health_recording, health_upkeep
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.repeats import repeated

ALIASES = "select alias, canonical from everpoll.health_aliases order by alias"
SET_ALIAS = """insert into everpoll.health_aliases (alias, canonical) values ($1, $2)
    on conflict (alias) do update set canonical = excluded.canonical returning 1"""
DELETE_ALIAS = "delete from everpoll.health_aliases where alias = $1 returning 1"
WINDOWS = "select id, body from everpoll.health_windows order by id"
SET_WINDOW = """insert into everpoll.health_windows (id, body) values ($1, $2)
    on conflict (id) do update set body = excluded.body returning 1"""
LOGGED = """with changed as ({}) select 1, everpoll.log_events(
    array[0::bigint], array[$%d::text], array[$%d::text], array[$%d::text], array[$%d::text]) from changed"""
DELETE_WINDOW = "delete from everpoll.health_windows where id = $1 returning 1"


class PostgresHealth(HealthSettings):
    """Records in tables of the schema."""

    set_alias_sql, delete_alias_sql = SET_ALIAS, DELETE_ALIAS
    set_window_sql, delete_window_sql = SET_WINDOW, DELETE_WINDOW

    def __init__(self, records: Lane, reads: Lane, upkeep: Lane) -> None:
        self._records = records
        self._reads = reads
        self._upkeep = upkeep

    async def record(self, looks: Sequence[NewLook]) -> None:
        """See the contract."""
        batch = batch_of(looks)
        if batch:
            rows = health_recording.rows_of(batch)
            await repeated(lambda: health_recording.record(self._records, rows))

    async def looks(self, service: str, from_at: float, to_at: float, limit: int = 1000) -> list[Look]:
        """See the contract."""
        check_name("service", service)
        return await health_reading.looks(self._reads, service, history_request(from_at, to_at, limit))

    async def last_looks(self, services: Sequence[str], n: int) -> dict[str, list[LookPoint]]:
        """See the contract."""
        check_limit("n", n, RECENT_LIMIT)
        check_names(services)
        return await health_reading.last_looks(self._reads, services, n) if services else {}

    async def dependencies(self, service: str) -> list[DependencyInfo]:
        """See the contract."""
        check_name("service", service)
        return await health_reading.dependencies(self._reads, service)

    async def edges(self, after: tuple[str, str] | None = None, limit: int = 1000) -> EdgePage:
        """See the contract."""
        check_limit("limit", limit)
        return await health_reading.edges(self._reads, after or ("", ""), limit)

    async def errors(self, service: str, dependency: str, limit: int = 100) -> list[ErrorEntry]:
        """See the contract."""
        check_name("service", service)
        check_limit("limit", limit)
        return await health_reading.errors(self._reads, service, dependency_name(dependency), limit)

    async def latencies(
        self, service: str, dependency: str, from_at: float, to_at: float, limit: int = 1000
    ) -> list[LatencyPoint]:
        """See the contract."""
        check_name("service", service)
        name, wanted = dependency_name(dependency), history_request(from_at, to_at, limit)
        return await health_reading.latencies(self._reads, service, name, wanted)

    async def rollups(self, service: str, step: Step, from_at: float, to_at: float) -> list[Bucket]:
        """See the contract."""
        check_name("service", service)
        wanted = for_buckets(step, from_at, to_at)
        return buckets_of(step, wanted, await health_reading.found_for(self._reads, service, wanted))

    async def summary(self, service: str, from_at: float, to_at: float) -> Rollup:
        """See the contract."""
        check_name("service", service)
        wanted = for_summary(from_at, to_at)
        return summary_of(wanted, await health_reading.found_for(self._reads, service, wanted))

    async def availability(self, services: Sequence[str], from_at: float) -> dict[str, Availability]:
        """See the contract."""
        check_names(services)
        return await health_reading.availability(self._reads, services, from_at) if services else {}

    async def aliases(self) -> dict[str, str]:
        """See the contract."""
        rows: list[tuple[str, str]] = await self._reads.rows(ALIASES)
        return dict(rows)

    async def windows(self) -> list[MaintenanceWindow]:
        """See the contract."""
        rows = await self._reads.rows(WINDOWS)
        return [MaintenanceWindow(window_id, msgspec.json.decode(body)) for window_id, body in rows]

    async def _set(self, statement: str, values: tuple[str, ...], entry: LogEntry | None) -> bool:
        """Make a change, and write its entry in the same statement."""
        if entry is None:
            return await self._upkeep.value(statement, *values) is not None
        numbers = range(len(values) + 1, len(values) + 5)
        logged = versioned(LOGGED.format(statement) % tuple(numbers))
        said = (entry.kind, entry.name, entry.key, entry.body)
        return await self._upkeep.value(logged, *values, *said) is not None

    async def forget(self, service: str) -> bool:
        """See the contract."""
        check_name("service", service)
        return await health_upkeep.forget(self._upkeep, service)

    async def roll_up(self, until: float, after: int = 0) -> int | None:
        """See the contract."""
        return await repeated(lambda: health_upkeep.roll_up_some(self._upkeep, milliseconds(until), after))

    async def prune(self, now: float, retention: Retention = KEPT) -> bool:
        """See the contract."""
        return await health_upkeep.prune(self._upkeep, now, retention)
