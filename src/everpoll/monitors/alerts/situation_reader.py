"""Situation reader: reads what decides whether an incident alerts: maintenance windows and the graph of services.

Promises: windows are at most WINDOWS_S old, and the graph at most GRAPH_S; the graph is also newer than the instant
that the caller names. Reading all services takes at most a tenth of the time: if callers ask more often, they get None
and ask again later.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from everpoll.monitors.control import Control, are_reports_stale, shown_status
from everpoll.monitors.graph import Graph, ServiceFacts
from everpoll.monitors.maintenance import Window
from everpoll.monitors.report import Status
from everpoll.monitors.service_rows import ServiceRow, service_rows
from everpoll.stores.contract import Store
from everpoll.stores.health import Edge

logger = logging.getLogger("everpoll.monitors")

WINDOWS_S = 2.0
GRAPH_S = 5.0
SHARE = 10
"""After reading a graph, wait at least this many times as long as the reading took."""
SHORTEST_PAUSE_S = 1.0
_PAGE = 1_000
_TROUBLED = frozenset({Status.DOWN.value, Status.DEGRADED.value})


class _ReadGraph(NamedTuple):
    graph: Graph
    at: float
    """When it was read, by the store's clock: the graph has everything that was committed before."""


class SituationReader:
    """Reads windows and the graph once for all incidents of one process and one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._windows: tuple[Window, ...] = ()
        self._windows_until = 0.0
        self._last: _ReadGraph | None = None
        self._reading: asyncio.Task[_ReadGraph] | None = None
        self._reading_at = 0.0
        self._not_before = 0.0

    async def windows(self) -> tuple[Window, ...]:
        """Return the maintenance windows."""
        now = asyncio.get_running_loop().time()
        if now >= self._windows_until:
            found = await self._store.health.windows()
            self._windows = tuple(window for one in found if (window := read_window(one.id, one.body)) is not None)
            self._windows_until = now + WINDOWS_S
        return self._windows

    async def graph(self, since: float, now: Callable[[], float]) -> Graph | None:
        """Return a graph that was read after `since`, by the store's clock `now`; None: ask again a second later."""
        since = max(since, now() - GRAPH_S)
        if self._last is not None and self._last.at >= since:
            return self._last.graph
        if self._reading is None:
            if asyncio.get_running_loop().time() < self._not_before:
                return None
            self._reading_at = now()
            self._reading = asyncio.get_running_loop().create_task(self._read(self._reading_at))
            self._reading.add_done_callback(self._read_ended)
        if self._reading_at < since:
            return None
        return (await asyncio.shield(self._reading)).graph

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _read_ended(self, reading: "asyncio.Task[_ReadGraph]") -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is None:
            self._last = reading.result()

    async def _read(self, at: float) -> _ReadGraph:
        event_loop = asyncio.get_running_loop()
        began = event_loop.time()
        try:
            reported = await self._reported()
            rows = await service_rows(self._store)
            aliases = await self._store.health.aliases()
            # In a thread: for 10,000 services this takes 100 ms, which would delay looks in the event loop.
            return _ReadGraph(await asyncio.to_thread(_drawn, rows, reported, aliases, at), at)
        finally:
            self._not_before = event_loop.time() + max(SHORTEST_PAUSE_S, SHARE * (event_loop.time() - began))

    async def _reported(self) -> dict[str, list[Edge]]:
        """Return the dependencies that services report as down or degraded: only they lead to a root."""
        found: dict[str, list[Edge]] = {}
        after: tuple[str, str] | None = None
        while True:
            page = await self._store.health.edges(after, _PAGE)
            for edge in page.edges:
                if edge.status in _TROUBLED and not edge.vanished:
                    found.setdefault(edge.service, []).append(edge)
            if page.after is None:
                return found
            after = page.after


def read_window(window_id: str, body: object) -> Window | None:
    """Read a stored maintenance window; return None if this release cannot read it."""
    try:
        return msgspec.convert(body, Window)
    except msgspec.ValidationError as error:
        logger.warning("maintenance window %r cannot be read, and is ignored: %s", window_id, error)
        return None


def _drawn(
    rows: Sequence[ServiceRow], reported: Mapping[str, list[Edge]], aliases: Mapping[str, str], at: float
) -> Graph:
    facts = [_facts(row, at, reported) for row in rows]
    graph = Graph(facts, aliases)
    failed = next((one.name for one in facts if one.status is Status.DOWN), None)
    if failed is not None:
        # The first call is expensive, because it groups cycles. Make it here, in the thread.
        graph.root_cause(failed)
    return graph


def _facts(row: ServiceRow, now: float, reported: Mapping[str, list[Edge]]) -> ServiceFacts:
    definition, control, is_paused = row.definition, row.control, row.assignment.paused is not None
    status = shown_status(definition, control, now, is_paused=is_paused)
    is_known = not is_paused and not are_reports_stale(definition, control, now)
    edges = reported.get(definition.name, []) if is_known else []
    return ServiceFacts(
        name=definition.name,
        status=status if isinstance(status, Status) else Status.UNKNOWN,
        since=control.changed_at or 0.0,
        depends_on=definition.depends_on,
        reported=tuple((one.name, Status(one.status), _failed_since(one.name, control)) for one in edges),
        alerts=bool(definition.alert.to),
    )


def _failed_since(dependency: str, control: Control) -> float:
    streak = control.dependencies.get(dependency)
    return (None if streak is None else streak.since) or control.changed_at or 0.0
