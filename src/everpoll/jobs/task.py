"""Task: the handle that `enqueue` returns, and that the function of a job may get."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from msgspec import UNSET

from everpoll.drivers.callers import check_kind
from everpoll.engine.actors import action
from everpoll.engine.work import Run
from everpoll.errors import (
    BadInput,
    JobCanceled,
    JobFailed,
    LeaseLost,
    NotRunning,
    TaskNotFound,
    WrongState,
)
from everpoll.jobs.call import decode as decode_call
from everpoll.jobs.outages import through_outages
from everpoll.jobs.own_transactions import completing_of, completion, inside, inside_sync
from everpoll.jobs.sync import SyncCalls, SyncInside
from everpoll.policy import Duration, human, seconds
from everpoll.policy.storable_texts import ERROR_LIMIT, storable
from everpoll.stores.contract import TaskInfo, encode
from everpoll.stores.limits import size_of
from everpoll.stores.operations import Revision

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from everpoll.jobs.registry import Jobs

    R_co = TypeVar("R_co", default=object, covariant=True)
else:
    from typing import TypeVar

    # Python 3.11 has no defaults of type variables; for type checkers, `Task` without a type has any result.
    R_co = TypeVar("R_co", covariant=True)

PROGRESS_LIMIT = 100_000
"""Bytes of JSON."""


class Task(Generic[R_co]):
    """One task. A parameter of a job that is annotated `Task` receives the running task."""

    __slots__ = ("_is_known", "_jobs", "_run", "id", "is_new")

    def __init__(
        self, jobs: "Jobs", task_id: int, *, is_new: bool = True, is_known: bool = True, run: Run | None = None
    ) -> None:
        self._jobs = jobs
        self._run = run
        self._is_known = is_known
        self.id = task_id
        self.is_new = is_new
        """False if a live task had the key already: this is that task."""

    def __repr__(self) -> str:
        return f"<Task {self.id}>"

    @property
    def sync(self) -> SyncInside:
        """Inside a plain function: the calls that need no `await`."""
        return SyncInside(self, self._jobs.sync)

    def on(self, jobs: "Jobs") -> "Task[R_co]":
        """Return a handle on the same task that uses these jobs."""
        return Task(jobs, self.id, is_new=self.is_new, is_known=self._is_known, run=self._run)

    async def info(self) -> TaskInfo:
        """Read all that the store has about the task."""
        store = await self._jobs.store()
        found = await store.info([self.id])
        if self.id not in found:
            raise TaskNotFound(f"no task {self.id}: it never existed here, or its history was dropped")
        return found[self.id]

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - the API's own word
        """Wait until the job has ended and return its result, converted to its return type; raise if it failed."""
        limit_s = None if timeout is None else seconds(timeout, name="timeout")
        if not self._is_known:
            await self.info()  # Raises for an id that does not exist, for which this would wait for ever.
            self._is_known = True
        results = await self._jobs.results()
        try:
            async with asyncio.timeout(limit_s):
                info = await results.wait(self.id)
        except TimeoutError:
            if limit_s is None:
                raise
            info = await self.info()
            if info.ended_at is None:
                raise TimeoutError(
                    f"task {self.id} has not ended within {human(limit_s)}: it is {info.state}; "
                    f"`everpoll why {self.id}` tells what it waits for"
                ) from None
        return self._value(info)

    async def cancel(self, reason: str = "canceled by the caller", *, by: str = "") -> bool:
        """Cancel the task; if it runs, its worker cancels it. Return False if it had ended already.

        `by` names the actor for the log.
        """
        store = await self._jobs.store()
        before = await self.info()
        state = await store.cancel(self.id, action("cancel", by, storable(reason, ERROR_LIMIT)))
        return before.ended_at is None and state in {"running", "canceled"}

    async def retry(self, *, by: str = "") -> bool:
        """Put an ended task back in the queue, with fresh attempts; return False if it is live, or its key is taken."""
        store = await self._jobs.store()
        for info in (await store.info([self.id])).values():
            refuse_to_retry_a_run(info)
        return await store.retry(self.id, action("retry", by, "retried by hand"))

    async def run_now(self, *, by: str = "") -> None:
        """Make the task due at once, without the rest of its delay; raise `WrongState` if it runs or has ended.

        `by` names the actor for the log.
        """
        info = await self.info()
        if info.kind != "job":
            raise WrongState(f"task {self.id} is a {info.kind}, not a job: nothing but a job is run by hand")
        if info.blockers:
            others = "1 other task" if info.blockers == 1 else f"{info.blockers} other tasks"
            raise WrongState(f"task {self.id} cannot be run now: it waits for {others} to end")
        store = await self._jobs.store()
        note = action("run-now", by)
        revision = Revision(task_id=self.id, hurry=True, only_queued=True, note=note)
        if await store.revise([revision]) == [None]:
            info = await self.info()
            advice = "" if info.ended_at is None else "; retry() puts an ended job back in the queue"
            raise WrongState(f"task {self.id} cannot be run now: it is {info.state}{advice}")

    @property
    def attempt(self) -> int:
        """Inside the job: which attempt this is, from 1."""
        return self._running("attempt").lease.attempt

    @property
    def scheduled_for(self) -> datetime | None:
        """Inside the job: the scheduled time for which it was enqueued; None if a caller enqueued it."""
        instant = decode_call(self._running("scheduled_for").lease.args).scheduled_for
        return None if instant is UNSET else datetime.fromtimestamp(instant, UTC)

    @property
    def fence(self) -> str:
        """Inside the job: a token that no other run of any task has, for its writes to other systems."""
        return self._running("fence").fence

    @property
    def is_stopping(self) -> bool:
        """Inside the job: True if it must end, by a cancel, a shutdown or a timeout. Plain functions check it."""
        return self._running("is_stopping").stop_reason is not None

    async def progress(self, value: Any, text: str | None = None) -> None:
        """Store how far the job is; call it inside the job. Raises `LeaseLost` if the job has lost its lease.

        With a text, `info().progress` is `{"value": value, "text": text}`, else the value. While the database is away,
        this waits, as long as the job may run.
        """
        run = self._running("progress()")
        if run.completing is not None:
            raise WrongState(f"task {self.id}: complete() was called: there is no progress after that")
        stored = encode(value if text is None else {"value": value, "text": text})
        if (size := size_of(stored)) > PROGRESS_LIMIT:
            raise BadInput(
                f"task {self.id}: its progress takes {size:,} bytes, more than {PROGRESS_LIMIT:,}; pass a figure or a "
                "line of text"
            )
        store = await self._jobs.store()

        async def ask() -> bool:
            return await store.progress(run.incarnation, run.lease, stored)

        if not await through_outages(store, ask, f"{run.lease.label}: cannot store its progress"):
            raise LeaseLost(f"task {self.id}: its lease was lost; end without further effects")

    async def complete(self, result: Any = None, *, connection: object) -> None:
        """End the job as done with this result, in the transaction of this connection; call it inside the job.

        The end counts once the transaction is committed, together with all its other writes; the job must commit before
        it returns. If the transaction is rolled back, the attempt has failed. Raises `LeaseLost` if the job has lost
        its lease; the transaction cannot be committed then.
        """
        run = self._running("complete()")
        instead = "task.sync.complete(…)"
        check_kind(connection, is_async=True, instead=instead)
        ended = completion(run, result)
        try:
            await inside(self._jobs, connection, completing_of(run, ended), instead)
        except BadInput:  # refused before anything was written
            run.completing = None
            raise

    def complete_sync(self, result: Any, connection: object, calls: SyncCalls) -> None:
        """End the job through a synchronous connection, for `task.sync.complete`."""
        run = self._running("complete()")
        instead = "await task.complete(…)"
        check_kind(connection, is_async=False, instead=instead)
        ended = completion(run, result)
        try:
            inside_sync(calls.call, connection, completing_of(run, ended), instead)
        except BadInput:  # refused before anything was written
            run.completing = None
            raise

    def _value(self, info: TaskInfo) -> R_co:
        if info.state != "done":
            _raise_end(info)
        value: R_co = self._jobs.converted(info)
        return value

    def _running(self, wanted: str) -> Run:
        if self._run is None:
            raise NotRunning(f"task {self.id}: {wanted} is known inside its job only")
        return self._run


def refuse_to_retry_a_run(info: TaskInfo) -> None:
    """Refuse a run of a watch: it has its outcome, and a retry would only clean up once more."""
    if info.kind == "watch":
        raise BadInput(f"task {info.id} is a run of the watch {info.name!r}: begin a new one, under another id")


def _raise_end(info: TaskInfo) -> NoReturn:
    if info.state == "canceled":
        raise JobCanceled(f"{info.name} (task {info.id}) was canceled: {info.cancel_reason}")
    error = info.errors[-1] if info.errors else info.trail[-1] if info.trail else {}
    cause = f"{error.get('type', '')}: {error.get('error', error.get('why', 'unknown'))}".removeprefix(": ")
    attempts = "1 attempt" if info.attempt == 1 else f"{info.attempt} attempts"
    raise JobFailed(f"{info.name} (task {info.id}) failed after {attempts}: {cause}", error)
