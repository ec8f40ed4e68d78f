"""A job: a registered function, and the ways to enqueue it.

`new_tasks` makes its tasks, `running` runs them.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

import msgspec

from everpoll.engine.calls import Callee
from everpoll.engine.tracing import carried, enqueueing, tracer
from everpoll.errors import BadInput
from everpoll.jobs.argument_types import from_builtin
from everpoll.jobs.call import ArgumentFlaw, CallShape
from everpoll.jobs.flows import JobCall
from everpoll.jobs.hooks import Hook
from everpoll.jobs.limits import JobLimits
from everpoll.jobs.new_tasks import NewTasks
from everpoll.jobs.options import (
    ENQUEUE_OPTIONS,
    EnqueueOptions,
    JobOptions,
    check_options,
    check_parameters,
    checked_priority,
    checked_text,
)
from everpoll.jobs.other_queues import meant
from everpoll.jobs.outcome import Retry
from everpoll.jobs.own_transactions import enqueueing_of, inside
from everpoll.jobs.process_calls import ProcessCalls, RaisedInProcess, checked_run
from everpoll.jobs.running import JobRunner
from everpoll.jobs.sync import SyncJob
from everpoll.jobs.task import Task
from everpoll.jobs.unique import KeyRules
from everpoll.jobs.verdicts import ErrorRules, Verdict
from everpoll.jobs.versions import Step, Versions
from everpoll.jobs.with_options import JobWithOptions
from everpoll.policy import Duration, seconds
from everpoll.stores.contract import Enqueued, NewTask, OnConflict

if TYPE_CHECKING:
    from everpoll.jobs.registry import Jobs

logger = logging.getLogger("everpoll.jobs")
P = ParamSpec("P")
R = TypeVar("R")


class Job(Generic[P, R]):
    """A registered job. A call of it is a call of the function; after `enqueue`, a worker calls the function."""

    def __init__(self, jobs: "Jobs", function: Callable[P, R], options: JobOptions) -> None:
        functools.update_wrapper(self, function)
        self._jobs = self.jobs = jobs
        self._function = function
        self.name = checked_text("name", options.get("name", getattr(function, "__name__", "")))
        where = f"job {self.name!r}"
        check_options(where, options, JobOptions)
        self.queue = checked_text(f"{where}: queue", options.get("queue", "default"))
        self.priority = checked_priority(f"{where}: priority", options.get("priority", 0))
        self.retry = options.get("retry", Retry())
        if not isinstance(self.retry, Retry):
            raise BadInput(f"{where}: retry={self.retry!r}: write Retry(3), which means three attempts in all")
        timeout = options.get("timeout")
        self.timeout_s = None if timeout is None else seconds(timeout, name=f"{where}: timeout", positive=True)
        check_parameters(where, function)
        self._shape = CallShape(self.name, function, Task)
        self.limits = JobLimits.of(where, self.name, self._shape.signature, dict(options))
        self.keys = KeyRules.of(where, options)
        self.runs_in_process = checked_run(where, options.get("run"))
        process: ProcessCalls | None = None
        if self.runs_in_process:
            process = ProcessCalls(self.name, where, function, lambda: jobs.children)
            if self._shape.task_parameter is not None:
                raise BadInput(f'{where}: run="process" knows no task: leave out {self._shape.task_parameter!r}')
        self._rules = ErrorRules(where, options.get("fatal", ()), options.get("classify"))
        self._versions = Versions(where, options.get("version", 1))
        self.version = self._versions.version
        """The version of its arguments."""
        self._new_tasks = NewTasks(self, function, self._shape)
        callee = Callee(function, self.timeout_s, lambda: jobs.threads)
        self.run = JobRunner(self, callee, self._shape, self._new_tasks, process, self._versions).run
        """Runs one task; called by the engine."""

    @property
    def signature(self) -> inspect.Signature:
        """The parameters that callers pass: without the task."""
        return self._shape.signature

    def migrate(self, start: int, end: int) -> Callable[[Step], Step]:
        """Register a function that converts arguments to a later version: it gets and returns (args, kwargs)."""

        def register(step: Step) -> Step:
            self._versions.add(start, end, step)
            return step

        return register

    def on_failed(self, hook: Hook) -> Hook:
        """Call this hook for each task of this job that has failed: see `app.on_failed`."""
        return self._jobs.hooks.add("failed", hook, self.name)

    def converted(self, result: Any) -> Any:
        """Convert a stored result to the return type of the function; return it unchanged if it does not fit."""
        if self._shape.result is Any or result is None:
            return result
        try:
            return msgspec.convert(result, self._shape.result, strict=False, dec_hook=from_builtin)
        except (msgspec.ValidationError, NotImplementedError):
            return result

    def __repr__(self) -> str:
        return f"<Job {self.name}>"

    if not TYPE_CHECKING:  # with __getattr__, type checkers accept every misspelled name

        def __getattr__(self, attribute: str) -> Any:
            """Raise `AttributeError`; for a method of another queue, name everpoll's. Called for missing names only."""
            own = self.__dict__.get("name", "job")
            hint = meant(own, attribute)
            raise AttributeError(f"job {own!r} has no {attribute!r}" + (f": {hint}" if hint else ""))

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self._function(*args, **kwargs)

    @overload
    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Task[R]: ...
    # With options: ParamSpec has no way to add parameters, so the arguments of the function are not checked.
    @overload
    async def enqueue(self, /, *args: Any, delay: Duration | datetime, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, /, *args: Any, priority: int, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, /, *args: Any, key: str, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, /, *args: Any, on_conflict: OnConflict, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, /, *args: Any, unique_for: Duration, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, /, *args: Any, connection: Any, **kwargs: Any) -> Task[R]: ...

    async def enqueue(self, /, *args: Any, **kwargs: Any) -> Task[R]:
        """Enqueue the job to run now, or after `delay=`. `EnqueueOptions` lists the other options."""
        return await self.enqueue_call(args, kwargs, self.split_options(kwargs))

    def options(self, **options: Unpack[EnqueueOptions]) -> JobWithOptions[P, R]:
        """Return the job with these options: `await job.options(delay="5s").enqueue(…)`."""
        check_options(f"job {self.name!r}", options, EnqueueOptions)
        return JobWithOptions(self, options)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> JobCall[R]:
        """Return the job with these arguments, for chains and groups: `await fetch.call(url).then(parse).enqueue()`."""
        return JobCall(self, args, dict(kwargs))

    @property
    def sync(self) -> SyncJob[P, R]:
        """The same calls for programs without an event loop: `job.sync.enqueue(…)`."""
        return SyncJob(self, self._jobs.sync)

    def split_options(self, kwargs: dict[str, Any]) -> EnqueueOptions:
        """Remove the options of `enqueue` from the keyword arguments of a call, and return them."""
        if not kwargs or ENQUEUE_OPTIONS.isdisjoint(kwargs):
            return {}
        taken: Any = {name: kwargs.pop(name) for name in EnqueueOptions.__annotations__ if name in kwargs}
        options: EnqueueOptions = taken
        return options

    async def enqueue_call(self, args: Sequence[Any], kwargs: dict[str, Any], options: EnqueueOptions) -> Task[R]:
        """Enqueue a call. Options are separate, because an argument may have the name of an option."""
        if (found := tracer()) is None:
            return await self._enqueue(args, kwargs, options)
        with enqueueing(found, self.name, self.queue) as span:
            task = await self._enqueue(args, kwargs, options)
            span.set_attribute("everpoll.task_id", task.id)
            return task

    async def _enqueue(self, args: Sequence[Any], kwargs: dict[str, Any], options: EnqueueOptions) -> Task[R]:
        if options and options.get("connection") is not None:
            task = self._new_tasks.special(tuple(args), kwargs, options, carried())
            return (await self._enqueue_inside([task], options))[0]
        enqueuer = await self._jobs.enqueuer()
        if options or self.keys is not None:
            task = self._new_tasks.special(tuple(args), kwargs, options, carried())
            enqueued = await enqueuer.one_of(task)
            if not enqueued.is_new:
                self.refuse_taken([task], [enqueued], options, self._handle)
            return Task(self._jobs, enqueued.id, is_new=enqueued.is_new)
        enqueued = await enqueuer.one(self._new_tasks.plain(tuple(args), kwargs, carried()))
        return Task(self._jobs, enqueued.id)

    async def _enqueue_inside(self, tasks: Sequence[NewTask], options: EnqueueOptions) -> list[Task[R]]:
        """Enqueue these tasks in the caller's transaction."""
        instead = f"{self.name}.sync.enqueue(…)"
        answers = await inside(self._jobs, options["connection"], enqueueing_of(tasks), instead) if tasks else []
        self.refuse_taken(tasks, answers, options, self._handle)
        return [Task(self._jobs, one.id, is_new=one.is_new) for one in answers]

    def _handle(self, task_id: int) -> Task[R]:
        return Task(self._jobs, task_id, is_new=False)

    def argument_flaw(self, args: Sequence[Any], kwargs: dict[str, Any]) -> ArgumentFlaw | None:
        """Return the first JSON value that does not fit the annotation of its parameter; None: all fit."""
        return self._shape.flaw(args, kwargs)

    async def enqueue_many(
        self, calls: Iterable[tuple[Any, ...] | JobCall[R]], **options: Unpack[EnqueueOptions]
    ) -> list[Task[R]]:
        """Enqueue one task per tuple of arguments, or per `job.call(…)`, all or none, in one statement."""
        if (found := tracer()) is None:
            return await self._enqueue_many(calls, options)
        given = list(calls)
        with enqueueing(found, self.name, self.queue, len(given)):
            return await self._enqueue_many(given, options)

    async def _enqueue_many(
        self, calls: Iterable[tuple[Any, ...] | JobCall[R]], options: EnqueueOptions
    ) -> list[Task[R]]:
        tasks = self.new_tasks(calls, options)
        if options and options.get("connection") is not None:
            return await self._enqueue_inside(tasks, options)
        enqueuer = await self._jobs.enqueuer()
        answers = await enqueuer.many(tasks)
        self.refuse_taken(tasks, answers, options, self._handle)
        return [Task(self._jobs, one.id, is_new=one.is_new) for one in answers]

    def refuse_taken(
        self,
        tasks: Sequence[NewTask],
        answers: Sequence[Enqueued],
        options: EnqueueOptions,
        handle: Callable[[int], Any],
    ) -> None:
        """Raise `KeyTaken` if the call has on_conflict="reject" and another task has the key of one of its tasks."""
        self._new_tasks.refuse_taken(tasks, answers, options, handle)

    def new_tasks(self, calls: Iterable[tuple[Any, ...] | JobCall[R]], options: EnqueueOptions) -> list[NewTask]:
        """Return the checked tasks for these tuples of arguments, or calls."""
        return self._new_tasks.many(calls, options)

    def new_task(self, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Unpack[EnqueueOptions]) -> NewTask:
        """Return the checked task for these arguments."""
        return self._new_tasks.one(args, kwargs, options)

    def new_task_with_deferred_argument(
        self, mark: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: EnqueueOptions
    ) -> NewTask:
        """Return the checked task of a call whose first argument comes later; `mark`: the JSON member that names it."""
        return self._new_tasks.with_deferred_argument(mark, args, kwargs, options)

    def verdict(self, error: BaseException) -> Verdict:
        """Return what an error of the function means for the next attempt."""
        return error.verdict if isinstance(error, RaisedInProcess) else self._rules.judge(error)
