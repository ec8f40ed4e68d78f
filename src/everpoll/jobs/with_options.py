"""`job.options(delay="5s")`: a job with options of its own for the calls that follow.

Type checkers check `job.options(delay="5s").enqueue(…)` against the parameters of the function, but not
`job.enqueue(…, delay="5s")`.
"""

from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from everpoll.jobs.flows import JobCall
from everpoll.jobs.sync import SyncTask
from everpoll.jobs.task import Task

if TYPE_CHECKING:
    from everpoll.jobs.job import Job
    from everpoll.jobs.options import EnqueueOptions

P = ParamSpec("P")
R = TypeVar("R")


class JobWithOptions(Generic[P, R]):
    """A job with options of `enqueue`."""

    __slots__ = ("_job", "_options")

    def __init__(self, job: "Job[P, R]", options: "EnqueueOptions") -> None:
        self._job = job
        self._options = options

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
        """Enqueue the job with these options."""
        return await self._job.enqueue_call(args, dict(kwargs), self._options)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> JobCall[R]:
        """Return the job with these arguments and options, for chains and groups."""
        return JobCall(self._job, args, dict(kwargs), self._options)

    @property
    def sync(self) -> "SyncJobWithOptions[P, R]":
        """The same calls for programs without an event loop."""
        return SyncJobWithOptions(self._job, self._options)


class SyncJobWithOptions(Generic[P, R]):
    """A job with options of `enqueue`, for programs without an event loop."""

    __slots__ = ("_job", "_options")

    def __init__(self, job: "Job[P, R]", options: "EnqueueOptions") -> None:
        self._job = job
        self._options = options

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> SyncTask[R]:
        """Enqueue the job with these options."""
        return self._job.sync.enqueue_call(args, dict(kwargs), self._options)
