"""A job: a function that can be enqueued, and how its tasks are run."""

import asyncio
import functools
import inspect
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET

from everpoll.engine.calls import Callee, failure, not_ended
from everpoll.engine.tracing import carried, enqueueing, tracer
from everpoll.engine.work import Run
from everpoll.errors import BadInput, RolledBack
from everpoll.jobs.argument_types import from_builtin
from everpoll.jobs.behind import PLAIN, Behind, arrived
from everpoll.jobs.behind import decode as decode_later
from everpoll.jobs.call import ArgumentFlaw, CallShape, decode
from everpoll.jobs.flows import TAKES_RESULT, JobCall
from everpoll.jobs.hooks import Hook
from everpoll.jobs.limits import JobLimits
from everpoll.jobs.options import (
    ENQUEUE_OPTIONS,
    EnqueueOptions,
    JobOptions,
    check_options,
    check_parameters,
    checked_priority,
    checked_text,
    delay_s_of,
)
from everpoll.jobs.outcome import Retry, raised, refused, returned
from everpoll.jobs.own_transactions import enqueueing_of, inside, is_complete
from everpoll.jobs.process_calls import ProcessCalls, RaisedInProcess, checked_run
from everpoll.jobs.sync import SyncJob
from everpoll.jobs.task import Task
from everpoll.jobs.unique import KeyRules, checked_key
from everpoll.jobs.verdicts import ErrorRules, Verdict
from everpoll.jobs.versions import Step, Versions
from everpoll.jobs.with_options import JobWithOptions
from everpoll.policy import Duration, seconds
from everpoll.stores.contract import Ended, Enqueued, Lease, NewTask, OnConflict, Settlement, Unique

if TYPE_CHECKING:
    from everpoll.jobs.registry import Jobs

logger = logging.getLogger("everpoll.jobs")
P = ParamSpec("P")
R = TypeVar("R")


class Job(Generic[P, R]):
    """A registered job. Calling it calls the function; `enqueue` has a worker call it."""

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
        self._call = Callee(function, self.timeout_s, lambda: jobs.threads).plainest
        self._shape = CallShape(self.name, function, Task)
        self.limits = JobLimits.of(where, self.name, self._shape.signature, dict(options))
        self.keys = KeyRules.of(where, options)
        self._process: ProcessCalls | None = None
        if checked_run(where, options.get("run")):
            self._process = ProcessCalls(where, function, lambda: jobs.children)
            if self._shape.task_parameter is not None:
                raise BadInput(f'{where}: run="process" knows no task: leave out {self._shape.task_parameter!r}')
        self._rules = ErrorRules(where, options.get("fatal", ()), options.get("classify"))
        self._versions = Versions(where, options.get("version", 1))
        self._rng = random.Random()  # noqa: S311 - jitter is no secret

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of its function that callers pass: without the task."""
        return self._shape.signature

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
    async def enqueue(self, *args: Any, on_conflict: OnConflict, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, *args: Any, unique_for: Duration, **kwargs: Any) -> Task[R]: ...
    @overload
    async def enqueue(self, *args: Any, connection: Any, **kwargs: Any) -> Task[R]: ...

    async def enqueue(self, *args: Any, **kwargs: Any) -> Task[R]:
        """Have a worker run it: now, or after `delay=`; see `EnqueueOptions` for what else it takes."""
        return await self.enqueue_call(args, kwargs, self.split_options(kwargs))

    def options(self, **options: Unpack[EnqueueOptions]) -> JobWithOptions[P, R]:
        """The same job with these options: `await job.options(delay="5s").enqueue(…)`."""
        check_options(f"job {self.name!r}", options, EnqueueOptions)
        return JobWithOptions(self, options)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> JobCall[R]:
        """The job with these arguments, for chains and groups: `await fetch.call(url).then(parse).enqueue()`."""
        return JobCall(self, args, dict(kwargs))

    @property
    def sync(self) -> SyncJob[P, R]:
        """The same calls for programs without an event loop: `job.sync.enqueue(…)`."""
        return SyncJob(self, self._jobs.sync)

    def split_options(self, kwargs: dict[str, Any]) -> EnqueueOptions:
        """Take what `enqueue` takes for itself out of the keyword arguments of a call."""
        if not kwargs or ENQUEUE_OPTIONS.isdisjoint(kwargs):
            return {}
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
        if options and options.get("connection") is not None:
            task = self._special(tuple(args), kwargs, options, carried())
            return (await self._enqueue_inside([task], options))[0]
        enqueuer = await self._jobs.enqueuer()
        if options or self.keys is not None:
            task = self._special(tuple(args), kwargs, options, carried())
            enqueued = await enqueuer.one_of(task)
            if not enqueued.is_new:
                self.refuse_taken([task], [enqueued], options, self._handle)
            return Task(self._jobs, enqueued.id, is_new=enqueued.is_new)
        enqueued = await enqueuer.one(self._plain(tuple(args), kwargs, carried()))
        return Task(self._jobs, enqueued.id)

    async def _enqueue_inside(self, tasks: Sequence[NewTask], options: EnqueueOptions) -> list[Task[R]]:
        """Enqueue these in the caller's own transaction."""
        instead = f"{self.name}.sync.enqueue(…)"
        answers = await inside(self._jobs, options["connection"], enqueueing_of(tasks), instead) if tasks else []
        self.refuse_taken(tasks, answers, options, self._handle)
        return [Task(self._jobs, one.id, is_new=one.is_new) for one in answers]

    def _handle(self, task_id: int) -> Task[R]:
        return Task(self._jobs, task_id, is_new=False)

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
        """Raise `KeyTaken` where a task of this call rejects, and another task has its key."""
        if self.keys is None and "on_conflict" not in options:
            return
        rules = self._rules_of(options)
        for task, enqueued in zip(tasks, answers, strict=True):
            rules.refuse(task, enqueued, handle)

    def _rules_of(self, options: EnqueueOptions) -> KeyRules:
        return (self.keys or KeyRules(f"job {self.name!r}")).changed(options)

    def new_tasks(self, calls: Iterable[tuple[Any, ...]], options: EnqueueOptions) -> list[NewTask]:
        """The tasks that these tuples of arguments make, checked."""
        if "key" in options:
            raise BadInput(f"job {self.name!r}: one key for many tasks would enqueue one; use enqueue() for keys")
        trace = carried()
        if not options and self.keys is None:
            return [self._plain(args if type(args) is tuple else _tuple(self.name, args), {}, trace) for args in calls]
        tasks = [self._special(_tuple(self.name, args), {}, options, trace, together=True) for args in calls]
        self._rules_of(options).refuse_repeats(tasks)
        return tasks

    def new_task(self, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Unpack[EnqueueOptions]) -> NewTask:
        """The task that these arguments make, checked."""
        if options or self.keys is not None:
            return self._special(args, kwargs, options, carried())
        return self._plain(args, kwargs, carried())

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any], trace: dict[str, str] | None) -> NewTask:
        text = self._shape.encode(args, kwargs, trace)
        return NewTask(
            name=self.name,
            args=text,
            queue=self.queue,
            priority=self.priority,
            timeout_s=self.timeout_s,
            limit=None if self.limits is None else self.limits.limit_of(args, kwargs),
            version=self._versions.version,
        )

    @functools.cached_property
    def behind(self) -> Behind:
        """How it is called where its first argument comes from another task."""
        return Behind(self.name, self._function, self._shape)

    def new_task_behind(
        self, mark: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: EnqueueOptions
    ) -> NewTask:
        """The task of a call whose first argument comes later, checked; `mark`: the member that says which."""
        if self._process is not None and mark != TAKES_RESULT:
            raise BadInput(
                f"job {self.name!r} runs in a process of its own, where there is no group: make the callback a job "
                'without run="process", which may enqueue this one'
            )
        task = NewTask(
            name=self.name,
            args=self.behind.encode(mark, args, kwargs, carried()),
            queue=self.queue,
            timeout_s=self.timeout_s,
            limit=self.behind.limit_of(self.limits, args, kwargs),
            version=self._versions.version,
        )
        if self.keys is not None and self.keys.of_call is not None and "key" not in options:
            raise BadInput(
                f"job {self.name!r}: its key= needs its first argument, which another task gives it later; give this "
                "call a key: job.options(key=…).call(…)"
            )
        return self._with_options(task, options, options.get("key"))

    def _special(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: EnqueueOptions,
        trace: dict[str, str] | None,
        *,
        together: bool = False,
    ) -> NewTask:
        check_options(f"job {self.name!r}", options, EnqueueOptions)
        task = self._plain(args, kwargs, trace)
        key = options.get("key")
        if key is None and self.keys is not None and "key" not in options:
            key = self.keys.key_of(args, kwargs)
        return self._with_options(task, options, key, together=together)

    def _with_options(
        self, task: NewTask, options: EnqueueOptions, key: str | None, *, together: bool = False
    ) -> NewTask:
        where = f"job {self.name!r}"
        if key is not None:
            key = checked_key(where, key)
        unique = self._unique(where, options, key, together=together)
        given = "priority" in options
        return msgspec.structs.replace(
            task,
            key=key,
            priority=checked_priority(f"{where}: priority", options["priority"]) if given else self.priority,
            delay_s=delay_s_of(f"{where}: delay", options["delay"], self._jobs.wall) if "delay" in options else 0.0,
            unique=unique,
            # Only what is found by its key after its end can answer then.
            indexed=unique is not None and unique.for_s is not None,
        )

    def _unique(self, where: str, options: EnqueueOptions, key: str | None, *, together: bool) -> Unique | None:
        rules = self.keys
        if "on_conflict" in options or "unique_for" in options:
            rules = self._rules_of(options)
            if key is None and rules.of_call is None:
                raise BadInput(f"{where}: on_conflict= and unique_for= are about a key, and this call has no key=")
        return None if rules is None or key is None else rules.unique(together=together)

    async def run(self, run: Run) -> Settlement:  # noqa: C901 - as calls, its steps would cost more than they do
        """Run one task: what the engine calls."""
        lease = run.lease
        if self.timeout_s is not None:
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
                value = await self._process(run, text, self.timeout_s, functools.partial(self._has_begun, run))
        except BaseException as error:  # noqa: BLE001 - `failure` tells what is the job's own
            return await self._failed(run, error)
        if not shape.has_no_task and run.completing is not None:
            return await self._completed(run)
        return Ended(lease.id, lease.sequence) if value is None else returned(lease, value)

    async def _failed(self, run: Run, error: BaseException) -> Settlement:
        """Decide what becomes of a task whose function has raised."""
        if run.completing is not None and await self._is_complete(run, error):
            return run.completing
        run.error = failure(run, error)
        return raised(run.lease, run.error, self.retry, self._rng, self.verdict(run.error))

    def _arguments_with_first(self, run: Run) -> tuple[Sequence[Any], dict[str, Any], str]:
        """The arguments of a call whose first one has come since it was enqueued, and their stored form."""
        later = decode_later(run.lease.args)
        if later.group is not UNSET:
            group = self._jobs.group_of(run.lease.id)
            return *self.behind.with_group(run.lease.args, self._task(run), group), run.lease.args
        # Arguments that were written by hand may begin otherwise, too.
        text = run.lease.args if later.takes is UNSET else arrived(later, self.name)
        return *self._shape.decode(text, self._task(run)), text

    async def _completed(self, run: Run) -> Settlement:
        """What becomes of a task whose function has called `complete()` and returned."""
        assert run.completing is not None, "asked before"
        if await self._is_complete(run):
            return run.completing
        run.error = RolledBack(
            "complete() was called in a transaction that was rolled back, or was not committed when the job returned"
        )
        return raised(run.lease, run.error, self.retry, self._rng, self.verdict(run.error))

    async def _is_complete(self, run: Run, error: BaseException | None = None) -> bool:
        """Whether the transaction was committed in which the function has called `complete()`: the run is over then.

        What the function raised after that changes nothing, but a cancellation passes through.
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
                text = arrived(later, self.name)
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
        return refused(lease, f"its arguments do not fit {self.name}: {type(error).__name__}: {error}")

    def verdict(self, error: BaseException) -> Verdict:
        """What an error of the function means for the next attempt."""
        return error.verdict if isinstance(error, RaisedInProcess) else self._rules.judge(error)

    def _has_begun(self, run: Run) -> None:
        """A process has taken it on: its time counts from here."""
        if self.timeout_s is not None:
            run.ends_by(asyncio.get_running_loop().time() + self.timeout_s)

    def _overdue(self, run: Run) -> Settlement:
        """A function that swallows its cancellation has failed as one that took too long has."""
        run.error = not_ended(self.timeout_s)
        return raised(run.lease, run.error, self.retry, self._rng)

    def _task(self, run: Run) -> Task[Any] | None:
        return None if self._shape.task_parameter is None else Task(self._jobs, run.lease.id, run=run)


def _tuple(name: str, args: object) -> tuple[Any, ...]:
    if isinstance(args, tuple):
        return args
    raise BadInput(
        f'job {name!r}: enqueue_many takes one tuple of arguments per task, as [("a",), ("b",)]; got {args!r}'
    )
