"""Everpoll: one app, which opens its store, and starts and stops its workers; `fronts.py` registers its fronts."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from everpoll.app.fronts import Fronts
from everpoll.drivers.missing_packages import missing_server
from everpoll.engine.health import Health, health_of
from everpoll.engine.loop_publisher import LoopPublisher
from everpoll.engine.opened_store import OpenedStore
from everpoll.engine.options import WorkerOptions
from everpoll.engine.queues import Queues
from everpoll.engine.starting import Starting
from everpoll.engine.stop_signals import finish_all, run_until_signal
from everpoll.engine.unregistered import Unregistered
from everpoll.engine.work import Run, WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.errors import AlreadyRunning, StoreUnavailable
from everpoll.jobs import Jobs
from everpoll.jobs.schedules import Schedules
from everpoll.jobs.sync import SyncCalls
from everpoll.loops import Loops
from everpoll.monitors.on_demand import ServicesOnDemand
from everpoll.policy import Clock, Duration, Rng, seconds, whole_number
from everpoll.stores.contract import Settlement, Store
from everpoll.stores.memory import MemoryStore
from everpoll.stores.urls import default_url, has_url, store_for, with_connections
from everpoll.tables import AdoptedTables
from everpoll.watches import Watches

if TYPE_CHECKING:
    from everpoll.doctor import Diagnosis
    from everpoll.server.asgi import HttpApp

logger = logging.getLogger("everpoll")


class Companion(Protocol):
    """A part that runs beside an app and stops with it, for example an HTTP server."""

    async def stop(self, grace_s: float) -> None:
        """Stop within the grace period. A second call changes nothing."""


class Everpoll(Fronts):
    """One app: register jobs and loops on it, then `await app.run()`, or `async with app:` inside your own program.

    `url` is the address of the database: by default `$EVERPOLL_URL`, then `sqlite:///everpoll.db`. The app opens it
    when the first job is enqueued or run, so an app with only loops needs no database. If it has an address (`url` or
    `$EVERPOLL_URL`) and serves HTTP, it publishes its loops there, and servers in other processes show them.

    An app belongs to the event loop that uses it first, until it is closed there or that event loop has ended.
    """

    def __init__(  # noqa: PLR0913 - what a user may say about an app, each with its default
        self,
        url: str | Store | None = None,
        *,
        slots: int = 50,
        queues: dict[str, int] | None = None,
        lease: Duration = "30s",
        history: Duration | None = "30d",
        migrate: bool = True,
        connections: int | None = None,
        aging: Duration | None = "10m",
        unknown: Duration | None = "1h",
        processes: int | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        # A caller may pass a store: tests share one between several apps, as a fleet shares a database.
        self._has_database = url is not None or has_url()
        self.url = url if isinstance(url, str) else default_url() if url is None else "memory://"
        is_url = url is None or isinstance(url, str)
        self.url = with_connections(self.url, connections)
        store: Store = store_for(self.url, clock) if url is None or isinstance(url, str) else url
        self._opened = OpenedStore(store, self._forget, migrate=migrate)
        self._clock = clock
        self._migrate = migrate
        self._worker: Worker | None = None
        self._starting = Starting()
        self.worker_options = WorkerOptions(
            slots=slots,
            queues=queues,
            lease_s=seconds(lease, name="lease", positive=True),
            keep_s=None if history is None else seconds(history, name="history"),
            aging_s=None if aging is None else seconds(aging, name="aging", positive=True),
            unknown_s=None if unknown is None else seconds(unknown, name="unknown"),
        )
        self._unregistered = Unregistered(lambda: self._works, self._leased_queues, self.worker_options.unknown_s)
        self._works = WorkRegistry(on_unregistered=self._unregistered.settle, on_unregistered_with_memory=self._hand_on)
        self.queues = Queues(self._served_queues, self.store)
        """The queues that a worker of this app serves, by name."""
        has_memory = isinstance(store, MemoryStore)
        another = None if has_memory or not is_url else self._another_store
        wall = time.time if clock is None else clock.wall
        if processes is not None:
            accepted = 'how many processes run jobs with run="process", 1 or more'
            processes = whole_number(processes, name="processes", at_least=1, accepted=accepted)
        self._is_exchanged = False
        self.jobs = Jobs(
            self._works,
            self.store,
            lambda jobs: self._sync_calls(jobs, another),
            wall,
            processes,
            lambda: not self._is_exchanged,
        )
        self.schedules = Schedules(self._works, self.store)
        self.watches = Watches(self._works, self.store)
        self._services = ServicesOnDemand(self.store, wall, lambda: self.worker_options, lambda: len(self._works) > 0)
        self.tables = AdoptedTables()
        self.loops = Loops(rng=rng, wall=wall)
        self._http_apps: list[HttpApp] = []
        self._companions: list[Companion] = []
        self._showing: LoopPublisher | None = None

    def _sync_calls(self, jobs: Jobs, another: Callable[[], Awaitable[Store]] | None) -> SyncCalls:
        return SyncCalls(another, jobs.beside, lambda: jobs, lambda: self._opened.running_loop)

    async def _another_store(self) -> Store:
        store = store_for(self.url, self._clock)
        await store.open(migrate=self._migrate)
        return store

    def asgi(
        self, prefix: str = "", token: str | None = None, read_only: bool = False, hosts: Iterable[str] | None = None
    ) -> "HttpApp":
        """Return the HTTP API as an ASGI app, to mount in FastAPI, Starlette, Django, or to run by a server.

        `prefix` is the path under which the app is mounted, for frameworks that do not pass it in `root_path` (Django).
        `token` is by default `$EVERPOLL_TOKEN`, beside `$EVERPOLL_READ_TOKEN`; without a token, only callers on this
        machine get an answer. `hosts` are the accepted host names; the default accepts any, if there is a token.
        """
        try:
            from everpoll.server.mounting import mounted  # noqa: PLC0415 - the extra may be missing
        except ModuleNotFoundError as error:
            raise missing_server(error.name) from None
        made = mounted(self, prefix, token, read_only=read_only, hosts=hosts)
        self._http_apps.append(made)
        return made

    def accompany(self, companion: "Companion") -> None:
        """Stop `companion` with the app, before the store is closed."""
        self._companions.append(companion)

    def exchange_store(self, store: Store) -> object:
        """Use another store until `restore_store` is called with the returned value: for `everpoll.testing`.

        Synchronous callers use the same object, since a second one could not see its tasks.
        """
        if self._opened.is_kept or self._worker is not None:
            raise AlreadyRunning("this app runs: exchange its store before it starts, or after close()")
        before = (self._opened.exchange(store), self.sync.exchange(None), self._is_exchanged)
        self._is_exchanged = True
        self._forget()
        return before

    def restore_store(self, before: Any) -> None:
        """Use the store again that `exchange_store` replaced."""
        opened, another, self._is_exchanged = before
        self._opened.exchange(*opened)
        self.sync.exchange(another)
        self._forget()

    def _forget(self) -> None:
        """Drop the workers and waiters of the earlier store or event loop."""
        self._worker = None
        self._unregistered.forget()
        self.jobs.forget()
        self.watches.forget()
        self._services.forget()

    @property
    def needs_store(self) -> bool:
        """Whether the app has work in a database. An app with only loops has none."""
        return len(self._works) > 0 or bool(self._services) or self._opened.is_open

    async def store(self) -> Store:
        """Return the store, connected and with its schema up to date."""
        return await self._opened.opened()

    @property
    def _store(self) -> Store:
        return self._opened.store

    def health(self) -> Health:
        """Return whether this app works: its worker polls and sends heartbeats, or has nothing to do."""
        tables = {name: health for name, one in self.tables.items() if (health := one.health()) is not None}
        pools = [self.jobs.threads, self.watches.threads, *(one.threads for one in self.tables.values())]
        return health_of(
            None if self._worker is None else self._worker.health(),
            tables,
            self._services.health(),
            loops=len(self.loops),
            threads=[*pools, *([] if self.loops.threads is None else [self.loops.threads])],
            start_error=self._starting.error,
        )

    async def doctor(self, transaction_age: Duration = "5m") -> "Diagnosis":
        """Examine the database and the fleet: return what is wrong, the evidence, and what to do. Changes nothing.

        Transactions open for longer than `transaction_age` are reported. If the database is unreachable or has no
        schema, nothing is raised: the diagnosis says so.
        """
        from everpoll.doctor import diagnose  # noqa: PLC0415 - few apps ask

        age_s = seconds(transaction_age, name="transaction_age", positive=True)
        return await diagnose(self._store.examiner(), age_s, self._works.names)

    def pollers(self) -> dict[str, Worker]:
        """Return the workers that run in this process, by name: "jobs", "services", and tables with their own."""
        found = {"jobs": self._worker, "services": self._services.worker}
        found |= {f"table {name}": table.worker for name, table in self.tables.items()}
        return {name: worker for name, worker in found.items() if worker is not None}

    async def close(self, grace: Duration = "10s") -> None:
        """Stop and close the store: take no new work, let handlers run for the grace period, then cancel them."""
        grace_s = seconds(grace, name="grace")
        event_loop = asyncio.get_running_loop()
        self._opened.use_from(event_loop)
        self._opened.is_kept = False
        worker, self._worker, self._starting.error = self._worker, None, None
        showing, self._showing = self._showing, None
        for http_app in self._http_apps:
            http_app.close()
        try:
            # Together: a cancellation at any point of this reaches each of them, and each hands back what it holds.
            await finish_all(
                self._unregistered.stop(),
                *([] if showing is None else [showing.stop()]),
                self.loops.close(grace_s),
                self._services.stop(grace_s),
                *(one.stop(grace_s) for one in self.tables.values()),
                *(one.stop(grace_s) for one in self._companions),
                *([] if worker is None else [worker.stop(grace_s)]),
            )
        finally:
            await self.watches.close()
            await self.jobs.close()
            await self._opened.close()
            # A caller that began to wait during this close would wait forever, and may have opened the store again.
            await self.jobs.close()
            await self.watches.close()
            await self._opened.close()
            self._opened.release(event_loop)

    def _hand_on(self, run: Run) -> Settlement:
        return self.watches.settle_unregistered(run)

    def _leased_queues(self) -> list[str]:
        return list(self.worker_options.queues or self._works.queues)

    def _served_queues(self) -> list[str]:
        if self.worker_options.queues is not None:
            return list(self.worker_options.queues)
        internal = self._works.internal_queues
        return [queue for queue in self._works.queues if queue not in internal]

    @contextlib.asynccontextmanager
    async def working(self, grace: Duration = 0) -> AsyncIterator[None]:
        """Run a worker for the length of the block, without loops: what `everpoll.testing.drain` uses.

        If the app runs already, the block uses its worker.
        """
        mine = await self._start_worker()
        try:
            yield
        finally:
            if mine is not None and mine is self._worker:
                self._worker = None
                await finish_all(self._unregistered.stop(), mine.stop(grace))

    async def __aenter__(self) -> Self:
        self._opened.use_from(asyncio.get_running_loop())
        if self._opened.is_kept:
            raise AlreadyRunning("this app runs already: enter it once, and use it inside that block")
        self._opened.is_kept = True
        try:
            await self._start()
        except BaseException:
            await self.close(grace=0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(grace=0 if kind else "10s")

    async def run(self, grace: Duration = "10s") -> None:
        """Run until SIGTERM, SIGINT or cancellation. A second signal cuts the grace period short."""
        grace_s = seconds(grace, name="grace")
        self._opened.use_from(asyncio.get_running_loop())
        await run_until_signal(self._starting.when_possible(self._start, self._store.back_off), self.close, grace_s)

    async def _start(self) -> None:
        await self._start_worker()
        await self.schedules.publish()
        away: StoreUnavailable | None = None
        for table in self.tables.values():
            try:
                await table.start()
            except StoreUnavailable as error:
                # It may be in another database: the other tables and the loops do not wait for it.
                away = away or error
        self.watches.rounds.start()
        await self._services.start()
        await self.loops.start()
        self._show_loops()
        if away is not None:
            raise away

    async def _start_worker(self) -> Worker | None:
        """Start the worker; return it, or None if there is nothing to run or it runs already."""
        # Opening the store first drops a worker that an ended event loop left behind.
        store = await self.store() if len(self._works) else None
        if store is None or self._worker is not None:
            return None
        worker = Worker(store, self._works, self.worker_options, self._settled, self.loops.cards, self.jobs.hooks.ended)
        self._unregistered.prepare(store)
        await worker.start()
        self._worker = worker
        await self._unregistered.start(worker.wake)
        return worker

    def _show_loops(self) -> None:
        """Publish the loops of this process where no worker for jobs does.

        An app with only loops opens a database for that only if it has an address and serves HTTP.
        """
        answers_http = self._has_database and bool(self._companions or self._http_apps)
        is_wanted = len(self.loops) > 0 and self._worker is None and (self.needs_store or answers_http)
        if not is_wanted or self._showing is not None:
            return
        options = replace(self.worker_options, label=f"{self.worker_options.label} (loops)", queues=None, keep_s=None)
        if self.needs_store or self.url.startswith("memory:"):
            self._showing = LoopPublisher(self.store, None, self.loops.cards, options)
        else:
            # A store of its own, so that the app itself still needs no database.
            self._showing = LoopPublisher.on_own_store(store_for(self.url), self._migrate, self.loops.cards, options)
        self._showing.start()

    def _settled(self, task_ids: list[int]) -> None:
        self.jobs.settled(task_ids)
        self.watches.settled(task_ids)
