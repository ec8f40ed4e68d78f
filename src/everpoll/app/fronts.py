"""Fronts: how a program registers jobs, schedules, watches, services, tables and loops on an app."""

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from everpoll.drivers.postgrest.token import Token
from everpoll.engine.options import WorkerOptions
from everpoll.engine.worker import Worker
from everpoll.errors import BadInput
from everpoll.jobs import Job, JobOptions, Jobs, Task
from everpoll.jobs.decorating import AsyncJob, JobDecorator
from everpoll.jobs.flows import Chain, JobCall
from everpoll.jobs.groups import NewGroup
from everpoll.jobs.hooks import Hook
from everpoll.jobs.schedules import Schedules
from everpoll.jobs.sync import SyncCalls
from everpoll.jobs.timetable import Missed
from everpoll.loops import LoopOptions, Loops
from everpoll.monitors.on_demand import ServicesOnDemand
from everpoll.policy import Backoff, Budget, Duration
from everpoll.tables import AdoptedTable, AdoptedTables, Table
from everpoll.tables.urls import source_for
from everpoll.watches import Cadence, Watch, Watches, WatchOptions

if TYPE_CHECKING:
    from everpoll.monitors.options import ServiceOptions
    from everpoll.monitors.service import Service
    from everpoll.monitors.services import Services

F = TypeVar("F", bound=Callable[[], Any])
J = TypeVar("J", bound=Job[..., Any])
Op = TypeVar("Op")
P = ParamSpec("P")
R = TypeVar("R")


class Fronts:
    """The methods of an app that register, and the registries that they add to."""

    url: str
    worker_options: WorkerOptions
    jobs: Jobs
    schedules: Schedules
    watches: Watches
    tables: AdoptedTables
    loops: Loops
    _services: ServicesOnDemand
    _worker: Worker | None

    @property
    def services(self) -> "Services":
        """The services that this app checks, by name."""
        return self._services.here()

    @overload
    def job(self, function: Callable[Concatenate[Task[Any], P], Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...

    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...

    @overload
    def job(self, function: Callable[Concatenate[Task[Any], P], R], /) -> Job[P, R]: ...

    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...

    @overload
    def job(self, /, **options: Unpack[JobOptions]) -> JobDecorator: ...

    def job(self, function: Callable[..., Any] | None = None, /, **options: Unpack[JobOptions]) -> Any:
        """Make the decorated function a job: a worker runs it after `await it.enqueue(…)`; plain ones run in threads.

        Options: name, queue, priority, retry, timeout, run, fatal, classify, version, concurrency, rate, per,
        key, on_conflict, unique_for; see `JobOptions`. `@app.job` alone takes the defaults.
        """

        def register(function: Callable[..., Any]) -> Job[..., Any]:
            return self.jobs.add(function, **options)

        return register if function is None else register(function)

    def on_done(self, hook: Hook) -> Hook:
        """Call the hook with the `TaskInfo` of each job that is done, after the commit, in the worker that ran it.

        Hooks only observe: an exception is logged, and a worker that dies calls none. An effect that must happen
        belongs in a job: use `.then`.
        """
        return self.jobs.hooks.add("done", hook)

    def on_failed(self, hook: Hook) -> Hook:
        """Call the hook with the `TaskInfo` of each job that failed: see `on_done`. `@job.on_failed` is for one job."""
        return self.jobs.hooks.add("failed", hook)

    def loop(self, every: Duration, **options: Unpack[LoopOptions]) -> Callable[[F], F]:
        """Run the decorated function at an interval, from one interval after the start; plain ones run in threads.

        Options: name, cap, jitter, first, when, timeout, fixed_rate, when_hidden, adaptive, breaker, safety_every,
        on_outcome; see `LoopOptions`.
        """
        if callable(every):
            raise BadInput('the interval is missing: write @app.loop(every="30s")')

        def register(function: F) -> F:
            self.loops.add(function, every, **options)
            return function

        return register

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        tz: str = "UTC",
        missed: Missed = "once",
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Callable[[J], J]:
        """Enqueue a job on a schedule: `@app.schedule("*/5 * * * *", tz="Europe/Berlin")` above `@app.job()`.

        Each scheduled time enqueues the job once over the fleet. `missed` decides about times that passed while no
        worker ran: run the latest one ("once"), none ("skip") or all of them ("all"). Several schedules of a job need
        names.
        """

        def register(job: J) -> J:
            if self._worker is not None:
                raise BadInput("this app runs already: register schedules before it starts")
            self.schedules.add(job, cron, every=every, tz=tz, missed=missed, name=name, args=args, kwargs=kwargs)
            return job

        return register

    def watch(
        self, every: "Cadence | Backoff | Duration", budget: Budget, **options: Unpack[WatchOptions]
    ) -> Callable[[Callable[Concatenate[Op, ...], Any]], Watch[Op]]:
        """Watch operations in another system. The decorated function is the look; `await it.begin(op)` begins a run.

        A look returns `Done(value)`, `Fail(reason)`, `Wait(after=…)` or `w.verify(name)`. Options: see `WatchOptions`.
        """

        def register(look: Callable[Concatenate[Op, ...], Any]) -> Watch[Op]:
            return self.watches.add(look, every, budget, options)

        return register

    def service(self, name: str, target: str, **options: "Unpack[ServiceOptions]") -> "Service":
        """Check a service again and again: `app.service("billing", "https://billing.internal/health", every="30s")`.

        The target is an http, https, tcp, tls or dns address, or `"beat:"` for a service that calls everpoll.
        Registering the same name again replaces the service, also while the app runs. Options: see `ServiceOptions`.
        """
        return self.services.add(name, target, **options)

    def table(
        self, table: Table, *, slots: int | None = None, url: str | None = None, token: Token | None = None
    ) -> AdoptedTable:
        """Use a table of your own as a queue: rows are claimed, passed to its `@….handler`, and updated in place.

        The table is in the app's own database, or at `url`: another database, or a Supabase project over HTTPS. `token`
        is the service key of that project, or a function that returns it (default: `$SUPABASE_SERVICE_KEY`).
        """
        if not isinstance(table, Table):
            raise BadInput(f'{table!r} is not a Table: write app.table(Table("execution_jobs", …))')
        if table.name in self.tables:
            raise BadInput(f"table {table.name!r} was adopted already: one table, one handler")
        source = source_for(self.url if url is None else url, table, token)
        adopted = AdoptedTable(table, source, (lambda: self.worker_options.slots) if slots is None else slots)
        self.tables[table.name] = adopted
        return adopted

    def group(self, calls: Iterable[JobCall[Any] | Chain]) -> NewGroup:
        """Run calls in parallel: `await app.group([fetch.call(url), …]).then(report, 42).enqueue()`.

        `report(group, 42)` runs once, after all calls have ended. A member may be a chain.
        """
        return self.jobs.group(calls)

    def task(self, task_id: int) -> Task[Any]:
        """Return a handle on a task that was enqueued earlier or by another process."""
        return self.jobs.task(task_id)

    @property
    def sync(self) -> SyncCalls:
        """The calls for programs without an event loop: `job.sync.enqueue(…)`, `app.sync.task(id)`."""
        return self.jobs.sync
