"""Synchronous callers: `job.sync`, `app.sync` and `task.sync`, from scripts, threads and forked processes.

Promises: the same calls with the same meaning, blocking. They use their own event loop and store, in another thread: an
app that runs in this process is not affected, and does not have to run. A call inside an event loop is refused at once.
Every call ends, with its answer, its timeout or an error.

A store in memory cannot be opened twice: its calls are made in the event loop of the app, or, while the app does not
run, in the thread of the caller.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from everpoll.engine.portal import Portal, refuse_in_an_event_loop, waited
from everpoll.errors import BadInput, NotRunning, TaskNotFound
from everpoll.jobs.own_transactions import enqueueing_of, inside_sync
from everpoll.policy import Duration, shown
from everpoll.stores.contract import NewTask, OnConflict, Store, TaskInfo

if TYPE_CHECKING:
    from everpoll.jobs.flows import JobCall
    from everpoll.jobs.job import Job
    from everpoll.jobs.options import EnqueueOptions
    from everpoll.jobs.registry import Jobs
    from everpoll.jobs.task import R_co as T_co
    from everpoll.jobs.task import Task
else:
    # As for `Task`: for type checkers, `SyncTask` without a type has any result.
    T_co = TypeVar("T_co", covariant=True)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
LAST_ID = 2**63 - 1


def checked_id(task_id: object) -> int:
    """Return the id of a task; raise `BadInput` if it is not a whole number, `TaskNotFound` if no task can have it."""
    if isinstance(task_id, bool) or not isinstance(task_id, int):
        raise BadInput(f"{shown(task_id)} is not the id of a task: write a whole number")
    if not 0 < task_id <= LAST_ID:
        raise TaskNotFound(f"no task {shown(task_id)}: ids are between 1 and 2^63-1")
    return task_id


class SyncCalls:
    """The synchronous side of one app: `app.sync`.

    `another` makes a second store with the same tasks; None if there can be only one. `own` returns the app's own jobs,
    and `running` the event loop in which the app runs at present.
    """

    def __init__(
        self,
        another: Callable[[], Awaitable[Store]] | None,
        jobs: "Callable[[Callable[[], Awaitable[Store]]], Jobs]",
        own: "Callable[[], Jobs]",
        running: Callable[[], asyncio.AbstractEventLoop | None],
    ) -> None:
        self._another = another
        self._make_jobs = jobs
        self._own = own
        self._running = running
        self._side: _Side | None = None
        self._inherited: list[object] = []

    def task(self, task_id: int) -> "SyncTask[Any]":
        """Return a handle on a task that was enqueued earlier or elsewhere."""
        return SyncTask(self, checked_id(task_id), is_known=False)

    def exchange(self, another: Callable[[], Awaitable[Store]] | None) -> Callable[[], Awaitable[Store]] | None:
        """Make stores with this function from now on; return the function used so far."""
        before, self._another = self._another, another
        self.close()
        return before

    def close(self) -> None:
        """Close the connections of synchronous callers; a later call connects again."""
        side, self._side = self._side, None
        if side is not None:
            side.portal.close()

    def call(self, ask: "Callable[[Jobs], Coroutine[Any, Any, S]]", instead: str) -> S:
        """Run `ask` on an event loop and return its answer; `instead`: what a caller in an event loop must write."""
        refuse_in_an_event_loop(instead)
        if self._another is None:
            running = self._running()
            if running is not None:
                return waited(asyncio.run_coroutine_threadsafe(ask(self._own()), running), running.is_running)
            return asyncio.run(ask(self._own()))
        side = self._current()
        return side.portal.call(ask(side.jobs))

    def _current(self) -> "_Side":
        side = self._side
        if side is None or side.pid != os.getpid():
            # After a fork this object belongs to the parent: keep it, so that its destructor does not close
            # connections.
            self._inherited.append(side)
            assert self._another is not None, "the only store is asked directly"
            side = self._side = _Side(self._another, self._make_jobs)
        return side

    @property
    def would_never_end(self) -> bool:
        """True if no worker can ever end a waiting task: only this process has the store, and no app runs in it."""
        return self._another is None and self._running() is None


class _Side:
    """The portal, and the jobs and the store that live in it."""

    def __init__(
        self,
        another: Callable[[], Awaitable[Store]],
        make_jobs: "Callable[[Callable[[], Awaitable[Store]]], Jobs]",
    ) -> None:
        self.pid = os.getpid()
        self._another = another
        self._opened: Store | None = None
        self._opening: asyncio.Lock | None = None
        self.jobs = make_jobs(self._store)
        self.portal = Portal("everpoll-sync", self._close)

    async def _store(self) -> Store:
        if self._opened is not None:
            return self._opened
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._opened is None:
                self._opened = await self._another()
            return self._opened

    async def _close(self) -> None:
        opened, self._opened, self._opening = self._opened, None, None
        await self.jobs.close()
        if opened is not None:
            await opened.close()


class SyncJob(Generic[P, R]):
    """`job.sync`: the calls of a job, for programs without an event loop."""

    __slots__ = ("_calls", "_job")

    def __init__(self, job: "Job[P, R]", calls: SyncCalls) -> None:
        self._job = job
        self._calls = calls

    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> "SyncTask[R]": ...
    # See `Job.enqueue`.
    @overload
    def enqueue(self, /, *args: Any, delay: Duration | datetime, **kwargs: Any) -> "SyncTask[R]": ...
    @overload
    def enqueue(self, /, *args: Any, priority: int, **kwargs: Any) -> "SyncTask[R]": ...
    @overload
    def enqueue(self, /, *args: Any, key: str, **kwargs: Any) -> "SyncTask[R]": ...
    @overload
    def enqueue(self, /, *args: Any, on_conflict: OnConflict, **kwargs: Any) -> "SyncTask[R]": ...
    @overload
    def enqueue(self, /, *args: Any, unique_for: Duration, **kwargs: Any) -> "SyncTask[R]": ...
    @overload
    def enqueue(self, /, *args: Any, connection: Any, **kwargs: Any) -> "SyncTask[R]": ...

    def enqueue(self, /, *args: Any, **kwargs: Any) -> "SyncTask[R]":
        """Enqueue the job, as `await job.enqueue(…)` does."""
        return self.enqueue_call(args, kwargs, self._job.split_options(kwargs))

    def enqueue_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: "EnqueueOptions") -> "SyncTask[R]":
        """Enqueue a call. Options are separate, because an argument may have the name of an option."""
        task = self._job.new_task(args, kwargs, **options)
        if options.get("connection") is not None:
            return self._enqueue_inside([task], options)[0]

        async def ask(jobs: "Jobs") -> Any:
            return await (await jobs.enqueuer()).one_of(task)

        enqueued = self._calls.call(ask, f"await {self._job.name}.enqueue(…)")
        self._job.refuse_taken([task], [enqueued], options, self._handle)
        return SyncTask(self._calls, enqueued.id, is_new=enqueued.is_new)

    def _enqueue_inside(self, tasks: "Sequence[NewTask]", options: "EnqueueOptions") -> "list[SyncTask[R]]":
        """Enqueue these tasks in the caller's transaction."""
        instead = f"await {self._job.name}.enqueue(…) with an asynchronous connection"
        connection = options["connection"]
        answers = inside_sync(self._calls.call, connection, enqueueing_of(tasks), instead) if tasks else []
        self._job.refuse_taken(tasks, answers, options, self._handle)
        return [SyncTask(self._calls, one.id, is_new=one.is_new) for one in answers]

    def _handle(self, task_id: int) -> "SyncTask[R]":
        return SyncTask(self._calls, task_id, is_new=False)

    def enqueue_many(
        self, calls: "Iterable[tuple[Any, ...] | JobCall[R]]", **options: "Unpack[EnqueueOptions]"
    ) -> "list[SyncTask[R]]":
        """Enqueue one task per tuple of arguments, or per `job.call(…)`, all or none."""
        tasks = self._job.new_tasks(calls, options)
        if options.get("connection") is not None:
            return self._enqueue_inside(tasks, options)

        async def ask(jobs: "Jobs") -> Any:
            return await (await jobs.enqueuer()).many(tasks)

        enqueued = self._calls.call(ask, f"await {self._job.name}.enqueue_many(…)")
        self._job.refuse_taken(tasks, enqueued, options, self._handle)
        return [SyncTask(self._calls, one.id, is_new=one.is_new) for one in enqueued]


class SyncTask(Generic[T_co]):
    """One task, for programs without an event loop."""

    __slots__ = ("_calls", "_is_known", "id", "is_new")

    def __init__(self, calls: SyncCalls, task_id: int, *, is_new: bool = True, is_known: bool = True) -> None:
        self._calls = calls
        self._is_known = is_known
        self.id = task_id
        self.is_new = is_new
        """False if a live task had the key already: this is that task."""

    def __repr__(self) -> str:
        return f"<SyncTask {self.id}>"

    def info(self) -> TaskInfo:
        """Return all that the store has about the task."""
        return self._asked(lambda task: task.info(), "info()")

    def result(self, timeout: Duration | None = None) -> T_co:
        """Wait until the job has ended and return its result, converted to its return type; raise if it failed."""
        if timeout is None and self._calls.would_never_end and self.info().ended_at is None:
            raise NotRunning(f"task {self.id} waits in memory, and no app runs in this process: it would wait for ever")
        return self._asked(lambda task: task.result(timeout), "result()")

    def cancel(self, reason: str = "canceled by the caller", *, by: str = "") -> bool:
        """Cancel the task; if it runs, its worker cancels it. Return False if it had ended already."""
        return self._asked(lambda task: task.cancel(reason, by=by), "cancel()")

    def retry(self, *, by: str = "") -> bool:
        """Put an ended task back in the queue, with fresh attempts; return False if it is live, or its key is taken."""
        return self._asked(lambda task: task.retry(by=by), "retry()")

    def run_now(self, *, by: str = "") -> None:
        """Make the task due at once, without its remaining delay or backoff."""
        self._asked(lambda task: task.run_now(by=by), "run_now()")

    def _asked(self, ask: "Callable[[Task[T_co]], Coroutine[Any, Any, S]]", what: str) -> S:
        def asked(jobs: "Jobs") -> Coroutine[Any, Any, S]:
            return ask(jobs.handle(self.id, is_known=self._is_known))

        return self._calls.call(asked, f"await task.{what}")


class SyncInside:
    """`task.sync`, inside a plain function that runs as a job."""

    __slots__ = ("_calls", "_task")

    def __init__(self, task: "Task", calls: SyncCalls) -> None:
        self._task = task
        self._calls = calls

    def progress(self, value: Any, text: str | None = None) -> None:
        """Store how far the job is, as `await task.progress(…)` does."""

        def asked(jobs: "Jobs") -> Coroutine[Any, Any, None]:
            return self._task.on(jobs).progress(value, text)

        self._calls.call(asked, "await task.progress(…)")

    def complete(self, result: Any = None, *, connection: object) -> None:
        """End the job in the transaction of this connection, as `await task.complete(…)` does."""
        self._task.complete_sync(result, connection, self._calls)
