"""Metrics for Prometheus: counts of this process, and of the tasks that wait in the store.

Promises: a registry of its own, so that the program that everpoll is part of keeps its metrics apart. Gauges of the
store are read at most every STORE_S, however often it is scraped; a store that is away shows as `everpoll_store_up 0`,
and delays a scrape by READ_S at most. Nothing is counted by reading history.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from everpoll.engine.worker import Worker
from everpoll.errors import EverpollError
from everpoll.jobs import Jobs
from everpoll.jobs.schedule_listing import ScheduleInfo, list_schedules
from everpoll.loops import Loops
from everpoll.monitors.info import info_of
from everpoll.monitors.service_rows import service_rows
from everpoll.monitors.services import Services
from everpoll.server import metric_families as families
from everpoll.stores.contract import QueueInfo, Store, TaskFilter, TaskInfo, WorkerInfo
from everpoll.stores.set_aside import UNKNOWN_JOB
from everpoll.watches import Watches

logger = logging.getLogger("everpoll.server")

CONTENT_TYPE = CONTENT_TYPE_LATEST
STORE_S = 5.0
READ_S = 2.0
SET_ASIDE = TaskFilter(state="queued", error=UNKNOWN_JOB)
"""The tasks that wait for a worker that registers their name."""
SET_ASIDE_LIMIT = 1_000
"""How many of them are counted."""


class MeasuredApp(Protocol):
    """The parts of an app that metrics need."""

    jobs: Jobs
    watches: Watches
    loops: Loops

    @property
    def services(self) -> Services:
        """The services of the app, by name."""
        ...

    @property
    def needs_store(self) -> bool:
        """Whether the app has work in a database."""
        ...

    def pollers(self) -> dict[str, Worker]:
        """Return the workers that run, by name."""
        ...

    async def store(self) -> Store:
        """Return the store, connected."""
        ...


class Metrics:
    """The metrics of one app. `await metrics.text()` is what a scrape gets."""

    def __init__(self, app: MeasuredApp) -> None:
        self._app = app
        self.registry = CollectorRegistry()
        self.registry.register(_Process(app))
        self._stored = _Stored(app)
        self.registry.register(self._stored)

    async def text(self) -> bytes:
        """Return the current metrics."""
        await self._stored.refresh()
        return generate_latest(self.registry)


class _Process(Collector):
    """The metrics of this process."""

    def __init__(self, app: MeasuredApp) -> None:
        self._app = app

    def collect(self) -> Iterator[Metric]:
        app = self._app
        pollers = app.pollers()
        yield from families.tasks([entry for worker in pollers.values() for entry in worker.tally.entries()])
        yield from families.pollers(
            {name: worker.health() for name, worker in pollers.items()},
            {name: worker.meter for name, worker in pollers.items()},
        )
        yield from families.watches({watch.name: watch.counters for watch in app.watches})
        yield from families.loops(app.loops.cards())
        yield from families.processes(app.jobs.children)
        yield from families.services(app.services.looks, app.services.alerts)


class _Stored(Collector):
    """The metrics of the store, from its last answer."""

    def __init__(self, app: MeasuredApp) -> None:
        self._app = app
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._is_up: bool | None = None
        self._now = 0.0
        self._queues: list[QueueInfo] = []
        self._workers: list[WorkerInfo] = []
        self._schedules: list[ScheduleInfo] = []
        self._set_aside: tuple[TaskInfo, ...] = ()
        self._statuses: Counter[str] = Counter()
        self._open_breakers = self._incidents = self._outbox = 0

    def collect(self) -> Iterator[Metric]:
        if self._is_up is not None:
            yield GaugeMetricFamily("everpoll_store_up", "1: the database answered the last query.", self._is_up)
        if self._is_up:
            yield from families.queues(self._queues, self._now)
            yield from families.workers(self._workers)
            yield from families.set_aside(self._set_aside)
            yield from families.schedules(self._schedules, self._now)
            yield from families.monitoring(self._statuses, self._open_breakers, self._incidents, self._outbox)

    async def refresh(self) -> None:
        """Query the store, unless it was queried a moment ago; scrapes at the same time share one query."""
        if not self._app.needs_store:
            return
        event_loop = asyncio.get_running_loop()
        if self._asking is None or self._asking.done() or self._asking.get_loop() is not event_loop:
            if event_loop.time() - self._asked_at < STORE_S:
                return
            self._asked_at = event_loop.time()
            self._asking = event_loop.create_task(self._ask(), name="everpoll-metrics")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._asking), READ_S)
        if not self._asking.done():
            self._is_up = False

    async def _ask(self) -> None:
        try:
            await self._read()
        except EverpollError as error:
            self._is_up = False
            logger.debug("metrics: the store does not answer: %s", error)
        except Exception:
            self._is_up = False
            logger.exception("metrics: cannot read the store")
        else:
            self._is_up = True

    async def _read(self) -> None:
        app = self._app
        store = await app.store()
        self._now = app.services.wall()
        self._queues = await store.queues()
        self._workers = await store.workers()
        self._schedules = await list_schedules(store)
        self._set_aside = (await store.tasks(SET_ASIDE, SET_ASIDE_LIMIT)).tasks
        infos = [info_of(row, self._now) for row in await service_rows(store)]
        self._statuses = Counter(str(one.status) for one in infos)
        self._open_breakers = sum(one.breaker == "open" for one in infos)
        self._incidents = await app.services.incidents.count_open() if infos else 0
        mailboxes = await store.tasks(TaskFilter(kind="mailbox", indexed=True), 100)
        self._outbox = sum(len((one.args or {}).get("notices", ())) for one in mailboxes.tasks if one.ended_at is None)
