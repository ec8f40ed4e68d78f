"""Running: decodes the arguments of a task, calls the function of its job, and makes the settlement.

Promises: every run returns a settlement, whatever the function does and whatever the arguments are; only a cancellation
is raised. A task of an earlier version is migrated first, one of a later version is left to a newer worker.
"""

import asyncio
import functools
import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from everpoll.engine.calls import Callee, failure, not_ended
from everpoll.engine.work import Run
from everpoll.errors import RolledBack
from everpoll.jobs.call import CallShape, decode
from everpoll.jobs.deferred_argument import PLAIN, arrived
from everpoll.jobs.deferred_argument import decode as decode_later
from everpoll.jobs.new_tasks import NewTasks
from everpoll.jobs.outcome import raised, refused, returned
from everpoll.jobs.own_transactions import is_complete
from everpoll.jobs.process_calls import ProcessCalls
from everpoll.jobs.task import Task
from everpoll.jobs.versions import Versions
from everpoll.stores.contract import Ended, Lease, Settlement

if TYPE_CHECKING:
    from everpoll.jobs.job import Job

logger = logging.getLogger("everpoll.jobs")


class JobRunner:
    """Runs the tasks of one job; `process` calls its function in another process, if the job has run="process"."""

    def __init__(
        self,
        job: "Job[..., Any]",
        callee: Callee,
        shape: CallShape,
        new_tasks: NewTasks,
        process: ProcessCalls | None,
        versions: Versions,
    ) -> None:
        self._job = job
        self._jobs = job.jobs
        self._timeout_s = job.timeout_s
        self._call = callee.cheapest
        self._shape = shape
        self._new_tasks = new_tasks
        self._process = process
        self._versions = versions
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret

    async def run(self, run: Run) -> Settlement:  # noqa: C901 - steps in functions of their own would take longer
        """Run one task; called by the engine."""
        lease = run.lease
        if self._timeout_s is not None:
            run.overdue = functools.partial(self._overdue, run)
        if lease.version != self._versions.version:
            return await self._run_of_another_version(run)
        shape, text = self._shape, lease.args
        try:
            if not text.startswith(PLAIN):
                args, kwargs, text = self._arguments_with_first(run)
            elif shape.has_no_task:
                try:
                    call = shape.usual(text)
                except msgspec.ValidationError:
                    call = shape.unusual(text)
                args, kwargs = call.args, call.kwargs
                if kwargs:
                    kwargs = shape.keywords(kwargs)
            else:
                args, kwargs = shape.decode(text, self._task(run))
        except Exception as error:  # noqa: BLE001 - arguments of another version, or written by hand
            return self._misfit(lease, error)
        try:
            if self._process is None:
                value = await self._call(*args, **kwargs)
            else:
                value = await self._process(run, text, self._timeout_s, functools.partial(self._has_begun, run))
        except BaseException as error:  # noqa: BLE001 - `failure` raises those that are not the job's own
            return await self._failed(run, error)
        if not shape.has_no_task and run.completing is not None:
            return await self._completed(run)
        return Ended(lease.id, lease.sequence) if value is None else returned(lease, value)

    async def _failed(self, run: Run, error: BaseException) -> Settlement:
        """Return the settlement of a task whose function has raised."""
        if run.completing is not None and await self._is_complete(run, error):
            return run.completing
        run.error = failure(run, error)
        return raised(run.lease, run.error, self._job.retry, self._rng, self._job.verdict(run.error))

    def _arguments_with_first(self, run: Run) -> tuple[Sequence[Any], dict[str, Any], str]:
        """Return the arguments of a call whose first argument came after the enqueue, and their stored form."""
        later = decode_later(run.lease.args)
        if later.group is not UNSET:
            group = self._jobs.group_of(run.lease.id)
            return *self._new_tasks.later.with_group(run.lease.args, self._task(run), group), run.lease.args
        # Arguments that were written by hand may have another order of members.
        text = run.lease.args if later.takes is UNSET else arrived(later, self._job.name)
        return *self._shape.decode(text, self._task(run)), text

    async def _completed(self, run: Run) -> Settlement:
        """Return the settlement of a task whose function has called `complete()` and returned."""
        assert run.completing is not None, "asked before"
        if await self._is_complete(run):
            return run.completing
        run.error = RolledBack(
            "complete() was called in a transaction that was rolled back, or was not committed when the job returned"
        )
        return raised(run.lease, run.error, self._job.retry, self._rng, self._job.verdict(run.error))

    async def _is_complete(self, run: Run, error: BaseException | None = None) -> bool:
        """Return True if the transaction in which the function called `complete()` was committed.

        The run is over then: an error that the function raised later changes nothing; a cancellation is raised again.
        """
        is_over = await is_complete(await self._jobs.store(), run)
        if is_over and run.host is not None and run.completing is not None:
            run.host.completed(run, run.completing)
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
                raise error
            if error is not None:
                logger.warning("%s: it is done, and raised after that: %r", run.lease.label, error, exc_info=error)
        return is_over

    async def _run_of_another_version(self, run: Run) -> Settlement:
        """Migrate the arguments of an earlier version, and run it; leave a later one to a newer worker."""
        lease = run.lease
        if lease.version > self._versions.version:
            return await self._jobs.set_aside(run)
        try:
            text, later = lease.args, None if lease.args.startswith(PLAIN) else decode_later(lease.args)
            if later is not None and later.takes is not UNSET:
                text = arrived(later, self._job.name)
            call = decode(text)
            call.args, call.kwargs = self._versions.migrated(lease.version, call.args, call.kwargs)
            text = self._shape.recoded(call)
            if later is not None and later.group is not UNSET:
                text = f'{{"group":{later.group},{text[1:]}'
        except Exception as error:  # noqa: BLE001 - a step is the user's own code
            return self._misfit(lease, error)
        run.lease = msgspec.structs.replace(lease, args=text, version=self._versions.version)
        return await self.run(run)

    def _misfit(self, lease: Lease, error: Exception) -> Settlement:
        return refused(lease, f"its arguments do not fit {self._job.name}: {type(error).__name__}: {error}")

    def _has_begun(self, run: Run) -> None:
        """Count the timeout from now: a process has begun to run the function."""
        if self._timeout_s is not None:
            run.ends_by(asyncio.get_running_loop().time() + self._timeout_s)

    def _overdue(self, run: Run) -> Settlement:
        """Fail a run that took too long and whose function suppressed its cancellation."""
        run.error = not_ended(self._timeout_s)
        return raised(run.lease, run.error, self._job.retry, self._rng)

    def _task(self, run: Run) -> Task[Any] | None:
        return None if self._shape.task_parameter is None else Task(self._jobs, run.lease.id, run=run)
