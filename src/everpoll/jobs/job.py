"""A job: a function that can be enqueued, and how its tasks are run."""

import functools
import inspect
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from everpoll.engine.calls import Callee, failure, not_ended
from everpoll.engine.tracing import carried, enqueueing, tracer
from everpoll.engine.work import Run
from everpoll.errors import BadInput
from everpoll.jobs.argument_types import from_builtin
from everpoll.jobs.call import ArgumentFlaw, CallShape, decode
from everpoll.jobs.hooks import Hook
from everpoll.jobs.limits import JobLimits, Per
from everpoll.jobs.outcome import Retry, raised, refused, returned
from everpoll.jobs.sync import SyncJob
from everpoll.jobs.task import Task
from everpoll.jobs.verdicts import Classify, ErrorRules
from everpoll.jobs.versions import Step, Versions
from everpoll.jobs.with_options import JobWithOptions
from everpoll.policy import Duration, Rate, flaw_of, seconds, shown, whole_number
from everpoll.stores.contract import Ended, Limit, NewTask, Settlement

if TYPE_CHECKING:
    from everpoll.jobs.registry import Jobs

P = ParamSpec("P")
R = TypeVar("R")

NAME_LIMIT = 200
TAKEN = ("delay", "priority", "key", "connection")
"""What `enqueue` takes for itself, now or later; a parameter of that name could not be passed by keyword."""
PRIORITY_LIMIT = 1_000_000_000


class JobOptions(TypedDict, total=False):
    """What `app.job` takes."""

    name: str
    """Default: the function's own name."""
    queue: str
    priority: int
    """Higher runs first; of equal ones, the oldest."""
    retry: Retry
    timeout: Duration | None
    """How long one run may take; then it has failed, as if it had raised."""
    concurrency: int | None
    """How many of its tasks run at a time, over the whole fleet."""
    rate: Rate | None
    """How many of its tasks start in any stretch of time, over the whole fleet."""
    fatal: type[Exception] | tuple[type[Exception], ...]
    """Errors after which it has failed at once, whatever attempts are left."""
    classify: Classify | None
    """A plain function of the error: "fatal", "transient", a duration until the next attempt, or None: as usual."""
    version: int
    """Of its arguments, from 1. Tasks of an earlier version pass through the steps of `@job.migrate`; those of a later
    one wait for a worker that has it."""
    per: Per | None
    """Which tasks count together for these limits: those with the same value of this parameter, or for which this
    function of the arguments gives the same key. None for a call: it counts for no limit."""


class EnqueueOptions(TypedDict, total=False):
    """What `enqueue` takes beside the job's own arguments."""

    delay: Duration
    priority: int
    key: str
    """At most one live task has it: enqueueing it again answers with that one."""


class Job(Generic[P, R]):
    """A registered job. Calling it calls the function; `enqueue` has a worker call it."""

    def __init__(self, jobs: "Jobs", function: Callable[P, R], options: JobOptions) -> None:
        functools.update_wrapper(self, function)
        self._jobs = jobs
        self._function = function
        self.name = _text("name", options.get("name", getattr(function, "__name__", "")))
        where = f"job {self.name!r}"
        _check_options(where, options, JobOptions)
        self.queue = _text(f"{where}: queue", options.get("queue", "default"))
        self.priority = _priority(f"{where}: priority", options.get("priority", 0))
        self.retry = options.get("retry", Retry())
        if not isinstance(self.retry, Retry):
            raise BadInput(f"{where}: retry={self.retry!r}: write Retry(3), which means three attempts in all")
        timeout = options.get("timeout")
        self.timeout_s = None if timeout is None else seconds(timeout, name=f"{where}: timeout", positive=True)
        _check_parameters(where, function)
        self._call = Callee(function, self.timeout_s, lambda: jobs.threads).plainest
        self._shape = CallShape(self.name, function, Task)
        self.limits = JobLimits.of(where, self.name, self._shape.signature, dict(options))
        self._rules = ErrorRules(where, options.get("fatal", ()), options.get("classify"))
        self._versions = Versions(where, options.get("version", 1))
        self._rng = random.Random()  # noqa: S311 - jitter is no secret

    @property
    def version(self) -> int:
        """Of its arguments."""
        return self._versions.version

    def migrate(self, start: int, end: int) -> Callable[[Step], Step]:
        """Register what turns the arguments of one version into those of a later one: `(args, kwargs)`, as JSON."""

        def register(step: Step) -> Step:
            self._versions.add(start, end, step)
            return step

        return register

    def on_failed(self, hook: Hook) -> Hook:
        """Call this for each task of this job that has failed: see `app.on_failed`."""
        return self._jobs.hooks.add("failed", hook, self.name)

    def converted(self, result: Any) -> Any:
        """A result of the store as the function's annotation has it; one that does not fit stays as it is."""
        if self._shape.result is Any or result is None:
            return result
        try:
            return msgspec.convert(result, self._shape.result, strict=False, dec_hook=from_builtin)
        except (msgspec.ValidationError, NotImplementedError):
            return result

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self._function(*args, **kwargs)

    @overload
    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Task[R]: ...
    # With options: ParamSpec knows no parameters beside those of the function, so the others are not checked then.
    @overload
    async def enqueue(self, *args: Any, delay: Duration | datetime, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, *args: Any, priority: int, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, *args: Any, key: str, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, *args: Any, connection: Any, **kwargs: Any) -> Task[R]: ...

    async def enqueue(self, *args: Any, **kwargs: Any) -> Task[R]:
        """Have a worker run it: now, or after `delay=`; see `EnqueueOptions` for what else it takes."""
        return await self.enqueue_call(args, kwargs, self.split_options(kwargs))

    def options(self, **options: Unpack[EnqueueOptions]) -> JobWithOptions[P, R]:
        """The same job with these options: `await job.options(delay="5s").enqueue(…)`."""
        _check_options(f"job {self.name!r}", options, EnqueueOptions)
        return JobWithOptions(self, options)

    @property
    def sync(self) -> SyncJob[P, R]:
        """The same calls for programs without an event loop: `job.sync.enqueue(…)`."""
        return SyncJob(self, self._jobs.sync)

    def split_options(self, kwargs: dict[str, Any]) -> EnqueueOptions:
        """Take what `enqueue` takes for itself out of the keyword arguments of a call."""
        taken: Any = {name: kwargs.pop(name) for name in EnqueueOptions.__annotations__ if name in kwargs}
        options: EnqueueOptions = taken
        return options

    async def enqueue_call(self, args: Sequence[Any], kwargs: dict[str, Any], options: EnqueueOptions) -> Task[R]:
        """Enqueue a call whose arguments and options come apart: one may be called as the other is."""
        if (found := tracer()) is None:
            return await self._enqueue(args, kwargs, options)
        with enqueueing(found, self.name, self.queue) as span:
            task = await self._enqueue(args, kwargs, options)
            span.set_attribute("everpoll.task_id", task.id)
            return task

    async def _enqueue(self, args: Sequence[Any], kwargs: dict[str, Any], options: EnqueueOptions) -> Task[R]:
        enqueuer = await self._jobs.enqueuer()
        enqueued = await enqueuer.one(self._new_task(tuple(args), kwargs, options, carried()))
        return Task(self._jobs, enqueued.id, is_new=enqueued.is_new)

    def argument_flaw(self, args: Sequence[Any], kwargs: dict[str, Any]) -> ArgumentFlaw | None:
        """Return the first JSON value that does not fit the annotation of its parameter; None: all fit."""
        return self._shape.flaw(args, kwargs)

    async def enqueue_many(self, calls: Iterable[tuple[Any, ...]], **options: Unpack[EnqueueOptions]) -> list[Task[R]]:
        """Enqueue one task per tuple of arguments, all or none, in one statement."""
        if (found := tracer()) is None:
            return await self._enqueue_many(calls, options)
        given = list(calls)
        with enqueueing(found, self.name, self.queue, len(given)):
            return await self._enqueue_many(given, options)

    async def _enqueue_many(self, calls: Iterable[tuple[Any, ...]], options: EnqueueOptions) -> list[Task[R]]:
        enqueuer = await self._jobs.enqueuer()
        tasks = self.new_tasks(calls, options)
        return [Task(self._jobs, one.id, is_new=one.is_new) for one in await enqueuer.many(tasks)]

    def new_tasks(self, calls: Iterable[tuple[Any, ...]], options: EnqueueOptions) -> list[NewTask]:
        """The tasks that these tuples of arguments make, checked."""
        if "key" in options:
            raise BadInput(f"job {self.name!r}: one key for many tasks would enqueue one; use enqueue() for keys")
        trace = carried()
        return [
            self._new_task(args if type(args) is tuple else _tuple(self.name, args), {}, options, trace)
            for args in calls
        ]

    def new_task(self, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Unpack[EnqueueOptions]) -> NewTask:
        """The task that these arguments make, checked."""
        return self._new_task(args, kwargs, options, carried())

    def _new_task(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: EnqueueOptions, trace: dict[str, str] | None
    ) -> NewTask:
        text = self._shape.encode(args, kwargs, trace)
        limit = None if self.limits is None else self.limits.limit_of(args, kwargs)
        if options:
            return self._special(text, options, limit)
        return NewTask(
            name=self.name,
            args=text,
            queue=self.queue,
            priority=self.priority,
            timeout_s=self.timeout_s,
            limit=limit,
            version=self._versions.version,
        )

    def _special(self, args: str, options: EnqueueOptions, limit: Limit | None) -> NewTask:
        where = f"job {self.name!r}"
        _check_options(where, options, EnqueueOptions)
        key = options.get("key")
        return NewTask(
            name=self.name,
            args=args,
            queue=self.queue,
            key=None if key is None else _text(f"{where}: key", key),
            priority=_priority(f"{where}: priority", options["priority"]) if "priority" in options else self.priority,
            delay_s=seconds(options["delay"], name=f"{where}: delay") if "delay" in options else 0.0,
            timeout_s=self.timeout_s,
            limit=limit,
            version=self._versions.version,
        )

    async def run(self, run: Run) -> Settlement:
        """Run one task: what the engine calls."""
        lease = run.lease
        if self.timeout_s is not None:
            run.overdue = functools.partial(self._overdue, run)
        shape, text = self._shape, lease.args
        if lease.version != self._versions.version and lease.version > self._versions.version:
            return await self._jobs.set_aside(run)
        try:
            if lease.version != self._versions.version:
                call = decode(text)
                text = shape.recoded(*self._versions.migrated(lease.version, call.args, call.kwargs))
            if shape.has_no_task:
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
            problem = f"its arguments do not fit {self.name}: {type(error).__name__}: {error}"
            return refused(lease, problem)
        try:
            value = await self._call(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - `failure` tells what is the job's own
            run.error = failure(run, error)
            return raised(lease, run.error, self.retry, self._rng, self._rules.judge(run.error))
        return Ended(lease.id, lease.sequence) if value is None else returned(lease, value)

    def _overdue(self, run: Run) -> Settlement:
        """A function that swallows its cancellation has failed as one that took too long has."""
        run.error = not_ended(self.timeout_s)
        return raised(run.lease, run.error, self.retry, self._rng)

    def _task(self, run: Run) -> Task[Any] | None:
        return None if self._shape.task_parameter is None else Task(self._jobs, run.lease.id, run=run)


def _check_options(where: str, given: Iterable[str], known: type) -> None:
    for name in given:
        if name not in known.__annotations__:
            raise BadInput(f"{where}: {name}= is no option; there are {', '.join(known.__annotations__)}")


def _check_parameters(where: str, function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"{where} is a generator: calling it would run none of it; write it without `yield`")
    for name, one in inspect.signature(function).parameters.items():
        if name in TAKEN and one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}:
            raise BadInput(
                f"{where}: its parameter {name!r} would never get {name}=…, which is an option of enqueue(); rename "
                f"it, or make it positional-only: def {getattr(function, '__name__', 'f')}({name}, /)"
            )


def _text(name: str, value: object) -> str:
    if (flaw := flaw_of(value, NAME_LIMIT)) is not None:
        raise BadInput(f"{name}={shown(value)} {flaw}: write a text of 1 to {NAME_LIMIT} characters")
    assert isinstance(value, str), "anything else has a flaw"
    return value


def _priority(name: str, value: int) -> int:
    accepted = "a whole number; higher runs first"
    number = whole_number(value, name=name, at_least=-PRIORITY_LIMIT, accepted=accepted)
    if number > PRIORITY_LIMIT:
        raise BadInput(f"{name}={value}: write a whole number of at most {PRIORITY_LIMIT:,}")
    return number


def _tuple(name: str, args: object) -> tuple[Any, ...]:
    if isinstance(args, tuple):
        return args
    raise BadInput(
        f'job {name!r}: enqueue_many takes one tuple of arguments per task, as [("a",), ("b",)]; got {args!r}'
    )
