"""Registry: all jobs of one app, and the parts that they share: store, enqueuer, waiters, threads."""

import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, Unpack

from everpoll.engine.child_processes import ChildProcesses
from everpoll.engine.enqueuer import Enqueuer
from everpoll.engine.threads import DaemonThreads
from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.errors import BadInput, JobNotFound
from everpoll.jobs.causes import Cause, RedriveFilter, Redriven, causes_of, instant_of, redriven
from everpoll.jobs.flows import Chain, JobCall
from everpoll.jobs.groups import NAME as GROUP
from everpoll.jobs.groups import Group, NewGroup, end_group
from everpoll.jobs.hooks import Hooks
from everpoll.jobs.job import Job
from everpoll.jobs.options import JobOptions
from everpoll.jobs.process_calls import CHILD
from everpoll.jobs.results import Results
from everpoll.jobs.sync import SyncCalls, checked_id
from everpoll.jobs.task import Task
from everpoll.policy import Duration
from everpoll.stores.contract import Settlement, Store, TaskInfo, TaskState
from everpoll.stores.flows import GROUP_KIND

P = ParamSpec("P")
R = TypeVar("R")
# More than the slots, because plain functions that hang after their timeout keep their thread.
THREADS = 1_000


class Jobs:
    """Registered jobs, by name. `store` connects on first use.

    `coalesces`: whether callers at the same time share a statement. Not in tests in which an enqueue runs its task.
    """

    def __init__(
        self,
        works: WorkRegistry,
        store: Callable[[], Awaitable[Store]],
        sync: Callable[["Jobs"], SyncCalls] | None = None,
        wall: Callable[[], float] = time.time,
        processes: int | None = None,
        coalesces: Callable[[], bool] = lambda: True,
    ) -> None:
        self._works = works
        works.everywhere[GROUP] = Work(GROUP, "", end_group, kind=GROUP_KIND)
        self._sync = None if sync is None else sync(self)
        self.store = store
        self.wall = wall
        self._jobs: dict[str, Job[..., Any]] = {}
        self._enqueuer: Enqueuer | None = None
        self._coalesces = coalesces
        self._results: Results | None = None
        self.threads = DaemonThreads(limit=THREADS, name="everpoll-job")
        self.hooks = Hooks(store)
        self.children = ChildProcesses(CHILD, processes)

    async def causes(self, *, name: str | None = None, queue: str | None = None) -> list[Cause]:
        """Group failed jobs by their error, the most frequent cause first."""
        return list((await causes_of(await self.store(), name, queue)).causes)

    async def redrive(  # noqa: PLR0913 - the filters
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        error: str | None = None,
        since: datetime | Duration | None = None,
        state: TaskState = "failed",
        everything: bool = False,
        dry_run: bool = False,
        by: str = "",
    ) -> Redriven:
        """Put ended jobs back in the queue, with fresh attempts: those that all filters find.

        `error` is the class of the last error. `since` is an instant, or a duration before now: only jobs enqueued then
        or later. `by` names the actor for the log. Raises `BadInput` without a filter, unless `everything` is True.
        """
        wanted = RedriveFilter(
            name=name, queue=queue, error=error, since=instant_of(since), state=state, everything=everything
        )
        return await redriven(await self.store(), wanted, by=by, dry_run=dry_run)

    @property
    def sync(self) -> SyncCalls:
        """The same jobs for programs without an event loop."""
        assert self._sync is not None, "jobs of an app have a synchronous side"
        return self._sync

    def add(self, function: Callable[P, R], **options: Unpack[JobOptions]) -> Job[P, R]:
        """Register a function."""
        if not callable(function):
            raise BadInput(f"{function!r} is not a function: a job is made from one")
        job = Job(self, function, options)
        if self._works.get(job.name) is not None:
            kind = "job" if job.name in self._jobs else "watch"
            raise BadInput(f"{kind} {job.name!r} is registered already; give one of the two another name=")
        self._jobs[job.name] = job
        limit = None if job.limits is None else job.limits.rule()
        self._works.add(Work(job.name, job.queue, job.run, job.timeout_s, limit=limit, version=job.version))
        return job

    def __contains__(self, name: object) -> bool:
        return name in self._jobs

    def beside(self, store: Callable[[], Awaitable[Store]]) -> "Jobs":
        """Return the same jobs with another store object, for callers of another thread."""
        made = Jobs(WorkRegistry(), store, lambda _: self.sync)
        made._jobs = self._jobs
        return made

    def converted(self, info: TaskInfo) -> Any:
        """Return the result of a task, converted to the function's return type if the job is registered here."""
        job = self._jobs.get(info.name) if info.kind == "job" else None
        return info.result if job is None else job.converted(info.result)

    async def set_aside(self, run: Run) -> Settlement:
        """Set aside a task whose arguments have a later version, for a worker that has it."""
        assert self._works.on_unregistered is not None, "an app has it"
        return await self._works.on_unregistered(run)

    def __getitem__(self, name: str) -> Job[..., Any]:
        try:
            return self._jobs[name]
        except KeyError:
            known = ", ".join(sorted(self._jobs)[:20]) or "none"
            raise JobNotFound(f"no job is called {name!r}; registered: {known}") from None

    def __len__(self) -> int:
        return len(self._jobs)

    def group(self, calls: Iterable[JobCall[Any] | Chain]) -> NewGroup:
        """Return a group of calls that run side by side, to be enqueued together."""
        return NewGroup(self, calls)

    def group_of(self, task_id: int) -> Group:
        """Return a handle on a group that was enqueued earlier or elsewhere."""
        return Group(self, task_id)

    @property
    def any_queue(self) -> str:
        """A queue that a worker of this app serves, if it has jobs."""
        return min((job.queue for job in self._jobs.values()), default="default")

    def task(self, task_id: int) -> Task[Any]:
        """Return a handle on a task that was enqueued earlier or elsewhere."""
        return self.handle(checked_id(task_id), is_known=False)

    def handle(self, task_id: int, *, is_known: bool) -> Task[Any]:
        """Return a handle on a task; `is_known` is True if the task certainly exists."""
        return Task(self, task_id, is_known=is_known)

    async def enqueuer(self) -> Enqueuer:
        """Return the enqueuer of this app."""
        store = await self.store()
        if not self._coalesces():
            return Enqueuer(store)
        if self._enqueuer is None:
            self._enqueuer = Enqueuer(store)
        return self._enqueuer

    async def results(self) -> Results:
        """Return the waiters of this app."""
        store = await self.store()
        if self._results is None:
            self._results = Results(store)
        return self._results

    def settled(self, task_ids: list[int]) -> None:
        """Wake the callers that wait for these tasks, which this process's worker has settled."""
        if self._results is not None:
            self._results.settled(task_ids)

    async def close(self) -> None:
        """Stop hooks, child processes, threads and waiters; a later call starts them again."""
        await self.hooks.close()
        await self.children.close()
        results = self._results
        self.forget()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.threads = DaemonThreads(limit=THREADS, name="everpoll-job")
        if results is not None:
            await results.close()

    def forget(self) -> None:
        """Drop the parts that belong to an earlier event loop, which is closed."""
        self._results = self._enqueuer = None
