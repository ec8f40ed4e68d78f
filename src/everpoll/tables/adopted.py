"""An adopted table: what `app.table(…)` gives, and how its rows are run.

executions = app.table(Table("execution_jobs", columns=("recording_id",)), slots=4)

@executions.handler
async def execute(row): ...
"""

import asyncio
import functools
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from everpoll.engine.calls import Callee, failure, not_ended
from everpoll.engine.meter import PollerHealth
from everpoll.engine.options import WorkerOptions
from everpoll.engine.threads import DaemonThreads
from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.errors import BadInput, TableNotFound
from everpoll.policy import Duration
from everpoll.stores.contract import Settlement
from everpoll.tables.mapping import Table
from everpoll.tables.outcome import raised, returned
from everpoll.tables.row import Row
from everpoll.tables.source import TableSource

logger = logging.getLogger("everpoll.tables")

F = TypeVar("F", bound=Callable[[Row], Any])


class AdoptedTable:
    """One table of the user's own, with its handler, and its worker while the app runs."""

    def __init__(self, table: Table, source: TableSource[Any, Any], slots: int | Callable[[], int]) -> None:
        self.table = table
        self.source = source
        # A function where they are the app's: `everpoll run --slots` says how many after the table was adopted.
        self._slots = slots if callable(slots) else lambda: slots
        self._options = WorkerOptions(
            refusal_patience_s=0.0,  # a constraint of the user's table is not going to change
            slots=self._slots(),
            lease_s=table.stale_after_s,
            beat_s=table.heartbeat_every_s,
            keep_s=None,
        )
        self._works = WorkRegistry()
        self._callee: Callee | None = None
        self._threads = DaemonThreads(limit=self._options.slots, name=f"everpoll-table-{table.name}")
        self._rng = random.Random()  # noqa: S311 - jitter needs no secret
        self._worker: Worker | None = None
        self._worked_on: asyncio.AbstractEventLoop | None = None
        self.started_at: datetime | None = None
        """When its worker last started."""

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    @property
    def has_handler(self) -> bool:
        """True if a handler is registered. Without one, the worker claims nothing."""
        return self._callee is not None

    def handler(self, function: F) -> F:
        """Run the decorated function for every row; plain functions run in threads."""
        if not callable(function):
            raise BadInput(f"table {self.name!r}: {function!r} is not a function: write @{self.name}.handler above one")
        if self._callee is not None:
            raise BadInput(f"table {self.name!r} has a handler already: one table, one handler")
        self._callee = Callee(function, self.table.timeout_s, lambda: self._threads)
        self._works.add(Work(self.name, self.name, self._run, self.table.timeout_s, kind="table"))
        return function

    async def start(self) -> None:
        """Check the table, then claim and run its rows; does nothing where that goes on already."""
        event_loop = asyncio.get_running_loop()
        # A worker of an event loop that ended without close() is gone with it.
        is_working = self._worker is not None and self._worked_on is event_loop
        if self._callee is None:
            logger.warning("table %s has no handler: its rows are left alone; write @….handler above one", self.name)
        if is_working or self._callee is None:
            return
        self._worker = None
        self._have_slots(self._slots())
        await self.source.open()
        if self.table.heartbeat is None:
            text = (
                "table %s: no heartbeat column is mapped: rows of a worker that is killed stay %r until you reset them"
            )
            logger.warning(f"{text}; name a column with heartbeat=…", self.name, self.table.running)
        worker = Worker(self.source, self._works, self._options)
        try:
            await worker.start()
        except BaseException:
            await self.source.close()
            raise
        self._worker, self._worked_on = worker, event_loop
        self.started_at = datetime.now(UTC)

    async def stop(self, grace: Duration = "10s") -> None:
        """Take no new rows, let handlers finish for the grace period, put the rest back. Repeatable."""
        worker, self._worker = self._worker, None
        try:
            if worker is not None:
                await worker.stop(grace)
        finally:
            await self.source.close()

    def _have_slots(self, slots: int) -> None:
        if slots != self._options.slots:
            self._options = replace(self._options, slots=slots)
            self._threads = DaemonThreads(limit=slots, name=f"everpoll-table-{self.name}")

    @property
    def threads(self) -> DaemonThreads:
        """The threads that run a plain handler."""
        return self._threads

    @property
    def worker(self) -> Worker | None:
        """The worker that claims its rows; None while it does not run."""
        return self._worker

    def health(self) -> PollerHealth | None:
        """The metrics of the poller; None while it does not run."""
        return None if self._worker is None else self._worker.health()

    async def _run(self, run: Run) -> Settlement:
        assert self._callee is not None, "a table without a handler claims nothing"
        if self.table.timeout_s is not None:
            run.overdue = functools.partial(self._overdue, run)
        try:
            value = await self._callee(Row(run))
        except BaseException as error:  # noqa: BLE001 - `failure` tells what is the handler's own
            run.error = failure(run, error)
            return raised(self.table, run.lease, run.error, self._rng)
        return returned(self.table, run.lease, value)

    def _overdue(self, run: Run) -> Settlement:
        """Return the settlement of a handler that swallowed its cancellation: failed, as after a timeout."""
        run.error = not_ended(self.table.timeout_s)
        return raised(self.table, run.lease, run.error, self._rng)


class AdoptedTables(dict[str, AdoptedTable]):
    """The adopted tables of an app, by name: `app.tables["orders"]`. An unknown name raises `TableNotFound`."""

    def __missing__(self, name: str) -> AdoptedTable:
        adopted = ", ".join(sorted(self)[:20]) or "none"
        raise TableNotFound(f"no table is called {name!r}; adopted: {adopted}")
