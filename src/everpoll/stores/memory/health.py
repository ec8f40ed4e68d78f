"""MemoryHealth: the records of services in plain Python, see `stores/health.py`.

Promises: the same behaviour as the databases, proven by the same suite. Rolled-up looks are packed as in a database, so
that a long history stays small. Every call is one step under the store's lock.
"""

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec

from everpoll.policy import Availability, Rollup
from everpoll.stores.health import (
    KEPT,
    RECENT_LIMIT,
    Bucket,
    DependencyInfo,
    Edge,
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
from everpoll.stores.health_answers import (
    check_limit,
    dependency_of,
    error_of,
    history_request,
    latencies_of,
    latest_of,
    looks_of,
    newer,
    points_of,
)
from everpoll.stores.health_batches import ServiceBatch, batch_of
from everpoll.stores.health_chunks import HOUR_MS, availability_of, times_of, unpack_looks
from everpoll.stores.health_limits import check_name, check_names, dependency_name, milliseconds, window_body
from everpoll.stores.health_ranges import (
    NOTHING_PRUNED,
    buckets_of,
    cutoffs,
    for_buckets,
    for_summary,
    hour_on,
    raised,
    summary_of,
)
from everpoll.stores.health_rolling import roll_up
from everpoll.stores.memory.service_history import ServiceHistory
from everpoll.stores.operations import LogEntry

STEP_SERVICES = 20
"""How many services one call rolls up."""

_instant = attrgetter("at_ms")


class MemoryHealth:
    """Records in dictionaries."""

    def __init__(self, lock: threading.RLock, write_entry: Callable[[LogEntry], None]) -> None:
        self._lock = lock
        self._write_entry = write_entry
        self._services: dict[str, ServiceHistory] = {}
        self._last_number = 0
        self._aliases: dict[str, str] = {}
        self._windows: dict[str, str] = {}
        self._horizon = NOTHING_PRUNED

    async def record(self, looks: Sequence[NewLook]) -> None:
        """See the contract."""
        batch = batch_of(looks)
        with self._lock:
            for name, of_service in batch.items():
                if name not in self._services:
                    self._last_number += 1
                    self._services[name] = ServiceHistory(self._last_number)
                self._record(self._services[name], of_service)

    def _record(self, history: ServiceHistory, batch: ServiceBatch) -> None:
        for at_ms, look in batch.looks.items():
            if not self._is_known(history, at_ms):
                history.looks[at_ms] = look
        horizon_ms = self._horizon.errors_ms
        for name, row in batch.dependencies.items():
            known = history.dependencies.get(name)
            if row.at_ms >= horizon_ms and (known is None or row.at_ms > known.at_ms):
                history.dependencies[name] = row
        for error in batch.errors.values():
            if error.at_ms >= horizon_ms:
                history.errors[error.dependency].setdefault(error.at_ms, error)

    def _is_known(self, history: ServiceHistory, at_ms: int) -> bool:
        if at_ms in history.looks:
            return True
        hour = at_ms // HOUR_MS
        if at_ms > history.record.packed_ms:
            return False
        packed = history.record.packed.get(hour)
        return hour < self._horizon.looks or (
            packed is not None and any(row.at_ms == at_ms for row in unpack_looks(hour * HOUR_MS, packed.looks))
        )

    async def looks(self, service: str, from_at: float, to_at: float, limit: int = 1000) -> list[Look]:
        """See the contract."""
        wanted = history_request(from_at, to_at, limit)
        with self._lock:
            history = self._history(service)
            return looks_of(wanted, history.between(wanted.from_ms, wanted.to_ms), history.packed(wanted))

    async def last_looks(self, services: Sequence[str], n: int) -> dict[str, list[LookPoint]]:
        """See the contract."""
        check_limit("n", n, RECENT_LIMIT)
        check_names(services)
        with self._lock:
            return {name: self._points(self._services[name], n) for name in services if name in self._services}

    def _points(self, history: ServiceHistory, n: int) -> list[LookPoint]:
        rows = sorted(history.looks.values(), key=_instant, reverse=True)
        points = [(row.at_ms, row.status, row.latency_us) for row in rows]
        return points_of(n, points, history.record.recent, history.record.packed_ms)

    async def dependencies(self, service: str) -> list[DependencyInfo]:
        """See the contract."""
        with self._lock:
            history = self._history(service)
            latest = latest_of(history.record.latencies_ms, history.record.latencies)
            for look in history.looks.values():
                latest = newer(latest_of(look.at_ms, look.latencies), latest)
            rows = (history.dependencies[name] for name in sorted(history.dependencies))
            return [dependency_of(row, self._aliases.get(row.name), latest) for row in rows]

    async def edges(self, after: tuple[str, str] | None = None, limit: int = 1000) -> EdgePage:
        """See the contract."""
        check_limit("limit", limit)
        with self._lock:
            found = [
                Edge(service, name, self._aliases.get(name, name), row.status, row.vanished)
                for service, history in sorted(self._services.items())
                for name, row in sorted(history.dependencies.items())
                if after is None or (service, name) > after
            ]
        page = tuple(found[:limit])
        return EdgePage(page, (page[-1].service, page[-1].name) if len(found) > limit else None)

    async def errors(self, service: str, dependency: str, limit: int = 100) -> list[ErrorEntry]:
        """See the contract."""
        check_limit("limit", limit)
        with self._lock:
            rows = self._history(service).errors.get(dependency_name(dependency), {})
            return [error_of(at_ms, *rows[at_ms][2:]) for at_ms in sorted(rows, reverse=True)[:limit]]

    async def latencies(
        self, service: str, dependency: str, from_at: float, to_at: float, limit: int = 1000
    ) -> list[LatencyPoint]:
        """See the contract."""
        wanted = history_request(from_at, to_at, limit)
        with self._lock:
            history = self._history(service)
            rows = history.between(wanted.from_ms, wanted.to_ms)
            return latencies_of(dependency_name(dependency), wanted, rows, history.packed(wanted))

    async def rollups(self, service: str, step: Step, from_at: float, to_at: float) -> list[Bucket]:
        """See the contract."""
        wanted = for_buckets(step, from_at, to_at)
        with self._lock:
            return buckets_of(step, wanted, self._history(service).found_for(wanted))

    async def summary(self, service: str, from_at: float, to_at: float) -> Rollup:
        """See the contract."""
        wanted = for_summary(from_at, to_at)
        with self._lock:
            found = self._history(service).found_for(wanted)
            found.horizon = self._horizon
            return summary_of(wanted, found)

    async def availability(self, services: Sequence[str], from_at: float) -> dict[str, Availability]:
        """See the contract."""
        check_names(services)
        with self._lock:
            found = {name: self._since(self._services[name], from_at) for name in services if name in self._services}
            return {name: availability_of([times_of(rollup)]) for name, rollup in found.items() if rollup.count}

    def _since(self, history: ServiceHistory, from_at: float) -> Rollup:
        wanted = for_summary(*hour_on(from_at))
        found = history.found_for(wanted)
        found.horizon = self._horizon
        return summary_of(wanted, found)

    async def aliases(self) -> dict[str, str]:
        """See the contract."""
        return dict(sorted(self._aliases.items()))

    async def set_alias(self, alias: str, canonical: str, entry: LogEntry | None = None) -> None:
        """See the contract."""
        check_name("alias", alias)
        check_name("canonical name", canonical)
        with self._lock:
            self._aliases[alias] = canonical
            self._log(entry)

    async def delete_alias(self, alias: str, entry: LogEntry | None = None) -> bool:
        """See the contract."""
        check_name("alias", alias)
        return self._dropped(self._aliases, alias, entry)

    async def windows(self) -> list[MaintenanceWindow]:
        """See the contract."""
        return [MaintenanceWindow(name, msgspec.json.decode(body)) for name, body in sorted(self._windows.items())]

    async def set_window(self, window: MaintenanceWindow, entry: LogEntry | None = None) -> None:
        """See the contract."""
        check_name("maintenance window", window.id)
        body = window_body(window.body)
        with self._lock:
            self._windows[window.id] = body
            self._log(entry)

    async def delete_window(self, window_id: str, entry: LogEntry | None = None) -> bool:
        """See the contract."""
        check_name("maintenance window", window_id)
        return self._dropped(self._windows, window_id, entry)

    def _dropped(self, of: dict[str, str], name: str, entry: LogEntry | None) -> bool:
        with self._lock:
            was_there = of.pop(name, None) is not None
            self._log(entry if was_there else None)
            return was_there

    def _log(self, entry: LogEntry | None) -> None:
        if entry is not None:
            self._write_entry(entry)

    async def forget(self, service: str) -> bool:
        """See the contract."""
        check_name("service", service)
        with self._lock:
            return self._services.pop(service, None) is not None

    async def roll_up(self, until: float, after: int = 0) -> int | None:
        """See the contract."""
        until_ms = milliseconds(until)
        with self._lock:
            waiting = [
                one
                for one in self._services.values()
                if one.number > after and any(at_ms < until_ms for at_ms in one.looks)
            ]
            some = sorted(waiting, key=attrgetter("number"))[:STEP_SERVICES]
            for history in some:
                old = sorted((row for row in history.looks.values() if row.at_ms < until_ms), key=_instant)
                roll_up(history.record, old)
                for row in old:
                    del history.looks[row.at_ms]
        return some[-1].number if len(some) == STEP_SERVICES else None

    async def prune(self, now: float, retention: Retention = KEPT) -> bool:
        """See the contract. One call drops everything that is too old."""
        with self._lock:
            last_hour = max((hour for one in self._services.values() for hour in one.record.hours), default=None)
            cut = cutoffs(now, retention)
            self._horizon = raised(self._horizon, cut, last_hour)
            for history in self._services.values():
                history.prune(cut)
        return False

    def _history(self, service: str) -> ServiceHistory:
        """Return the history of a service; an empty one if it is not known."""
        check_name("service", service)
        return self._services.get(service) or ServiceHistory(0)
