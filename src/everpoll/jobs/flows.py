"""Calls and chains: jobs with their arguments, and the jobs that follow them, enqueued as a whole.

    task = await fetch.call(url).then(parse).then(store, 7).enqueue()

Promises: all tasks of a chain are enqueued in one transaction, or none. Each runs once the one before is done, and gets
its result as first argument. A task that fails or is canceled cancels those after it; the trail of each names it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from everpoll.engine.held_keys import retry_while_locked
from everpoll.engine.tracing import enqueueing, tracer
from everpoll.errors import BadInput, KeyTaken
from everpoll.jobs.options import EnqueueOptions
from everpoll.jobs.sync import SyncTask
from everpoll.jobs.task import Task
from everpoll.policy import shown
from everpoll.stores.contract import Enqueued, NewTask, Store
from everpoll.stores.flows import FlowTask

if TYPE_CHECKING:
    from everpoll.jobs.job import Job
    from everpoll.jobs.registry import Jobs

R = TypeVar("R")
TAKES_RESULT = '"takes":"result"'
NOT_FOR_ONE = ("connection", "on_conflict", "unique_for")
"""Options of `enqueue` that one of several tasks cannot have for itself."""
IN_FLOWS = (
    "tasks of chains and groups: these are enqueued together, in a transaction of their own, and not at all where a "
    "key is taken"
)


class JobCall(Generic[R]):
    """A job with its arguments: `job.call(…)`."""

    __slots__ = ("args", "job", "kwargs", "options")

    def __init__(
        self, job: "Job[..., R]", args: tuple[Any, ...], kwargs: dict[str, Any], options: EnqueueOptions | None = None
    ) -> None:
        self.job = job
        self.args = args
        self.kwargs = kwargs
        self.options: EnqueueOptions = options or {}

    def __repr__(self) -> str:
        given = [*map(shown, self.args), *(f"{name}={shown(value)}" for name, value in self.kwargs.items())]
        return f"<call {self.job.name}({', '.join(given)})>"

    def then(self, following: "Job[..., Any] | JobCall[Any]", *extra: Any) -> "Chain":
        """Run another job after this one, with its result as first argument and the extra ones after it."""
        return Chain((self, call_of(following, extra)))

    async def enqueue(self) -> Task[R]:
        """Enqueue the call: a worker runs it."""
        return await self.job.enqueue_call(self.args, dict(self.kwargs), self.options)

    @property
    def sync(self) -> "SyncCall[R]":
        """The same call for programs without an event loop."""
        return SyncCall(self)

    def new_task(self) -> NewTask:
        """Return the task of this call, to be enqueued with others."""
        return self.job.new_task(self.args, dict(self.kwargs), **self.options_beside_others())

    def task_with_deferred_argument(self, mark: str) -> NewTask:
        """Return the task of this call without its first argument; `mark` is the JSON member that says which it is."""
        options = self.options_beside_others()
        return self.job.new_task_with_deferred_argument(mark, self.args, dict(self.kwargs), options)

    def options_beside_others(self, why: str = IN_FLOWS) -> EnqueueOptions:
        """Return its options; raise `BadInput` for those that one of several tasks cannot have."""
        for name in NOT_FOR_ONE:
            if name in self.options:
                raise BadInput(f"job {self.job.name!r}: {name}= is not for {why}")
        return self.options


class Chain:
    """Calls that run one after the other."""

    __slots__ = ("calls",)

    def __init__(self, calls: tuple[JobCall[Any], ...]) -> None:
        self.calls = calls

    def __repr__(self) -> str:
        return f"<chain {' → '.join(call.job.name for call in self.calls)}>"

    def then(self, following: "Job[..., Any] | JobCall[Any]", *extra: Any) -> "Chain":
        """Run another job after the last one, with its result as first argument and the extra ones after it."""
        return Chain((*self.calls, call_of(following, extra)))

    async def enqueue(self) -> Task[Any]:
        """Enqueue all of them, or none; return the last task."""
        jobs = self.calls[0].job.jobs
        (last, *_) = await enqueue_flow(jobs, self.flow(), str(self))
        return Task(jobs, last.id)

    @property
    def sync(self) -> "SyncChain":
        """The same chain for programs without an event loop."""
        return SyncChain(self)

    def flow(self, then: int | None = None, start: int = 0) -> list[FlowTask]:
        """Return the tasks, the last one first.

        `then` is the index of the task that waits for the last one; `start` is the index of the last one.
        """
        first, *rest = self.calls
        tasks = [first.new_task(), *(call.task_with_deferred_argument(TAKES_RESULT) for call in rest)]
        places = [then, *range(start, start + len(rest))]
        takes = [*["result"] * len(rest), None]
        return [
            FlowTask(task, place, taken)  # type: ignore[arg-type] # one of the two words, or none
            for task, place, taken in zip(reversed(tasks), places, takes, strict=True)
        ]


class SyncCall(Generic[R]):
    """`call.sync`: for programs without an event loop."""

    __slots__ = ("_call",)

    def __init__(self, call: JobCall[R]) -> None:
        self._call = call

    def enqueue(self) -> SyncTask[R]:
        """Enqueue the call, as `await call.enqueue()` does."""
        call = self._call
        task: SyncTask[R] = call.job.sync.enqueue_call(call.args, dict(call.kwargs), call.options)
        return task


class SyncChain:
    """`chain.sync`: for programs without an event loop."""

    __slots__ = ("_chain",)

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def enqueue(self) -> SyncTask[Any]:
        """Enqueue all of them, or none; return the last task, as `await chain.enqueue()` does."""
        sync, flow = self._chain.calls[0].job.jobs.sync, self._chain.flow()

        async def ask(jobs: "Jobs") -> list[Enqueued]:
            return await enqueue_flow(jobs, flow, str(self._chain))

        (last, *_) = sync.call(ask, "await chain.enqueue()")
        return SyncTask(sync, last.id)


def call_of(given: object, extra: tuple[Any, ...] = ()) -> JobCall[Any]:
    """Return the call that `then` was given: a call, or a job with its further arguments."""
    if isinstance(given, JobCall):
        if extra:
            raise BadInput(f"{given!r} has its arguments: write .then({given.job.name}.call(…)), and nothing after it")
        return given
    call: JobCall[Any] | None = given.call(*extra) if hasattr(given, "call") and hasattr(given, "enqueue") else None
    if isinstance(call, JobCall):
        return call
    raise BadInput(f"{shown(given)} is not a job: write .then(job, …), or .then(job.call(…))")


async def enqueue_flow(jobs: "Jobs", flow: Sequence[FlowTask], name: str) -> list[Enqueued]:
    """Enqueue tasks that wait for one another; raise `KeyTaken`, and enqueue none, if the key of one is taken."""
    store = await jobs.store()
    if (found := tracer()) is None:
        return await _enqueued(jobs, store, flow)
    with enqueueing(found, name, flow[-1].task.queue, len(flow)):
        return await _enqueued(jobs, store, flow)


async def _enqueued(jobs: "Jobs", store: Store, flow: Sequence[FlowTask]) -> list[Enqueued]:
    answers = await retry_while_locked(lambda: store.enqueue_flow(flow))
    for one, answer in zip(flow, answers, strict=True):
        if not answer.is_new and answer.id:
            raise KeyTaken(
                f"job {one.task.name!r}: task {answer.id} has the key {one.task.key!r}; nothing of the chain or group "
                "was enqueued",
                jobs.handle(answer.id, is_known=True),
            )
    return answers
