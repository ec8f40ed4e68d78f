"""New tasks: makes checked rows for the store from the arguments and the options of calls of one job.

Promises: a call that cannot run or cannot be stored is refused here. Never calls the store.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from everpoll.engine.tracing import carried
from everpoll.errors import BadInput
from everpoll.jobs.call import CallShape
from everpoll.jobs.deferred_argument import DeferredArgument
from everpoll.jobs.flows import TAKES_RESULT, JobCall
from everpoll.jobs.options import EnqueueOptions, check_options, checked_priority, delay_s_of
from everpoll.jobs.unique import KeyRules, checked_key
from everpoll.policy import shown
from everpoll.stores.contract import Enqueued, NewTask, Unique

if TYPE_CHECKING:
    from everpoll.jobs.job import Job


class NewTasks:
    """Makes the tasks of one job."""

    def __init__(self, job: "Job[..., Any]", function: Callable[..., Any], shape: CallShape) -> None:
        self._job = job
        self._function = function
        self._shape = shape
        self._where = f"job {job.name!r}"

    @functools.cached_property
    def later(self) -> DeferredArgument:
        """The form of a call whose first argument comes from another task."""
        return DeferredArgument(self._job.name, self._function, self._shape)

    def one(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: EnqueueOptions) -> NewTask:
        """Make the task of one call."""
        if options or self._job.keys is not None:
            return self.special(args, kwargs, options, carried())
        return self.plain(args, kwargs, carried())

    def many(self, calls: "Iterable[tuple[Any, ...] | JobCall[Any]]", options: EnqueueOptions) -> list[NewTask]:
        """Make one task for each tuple of arguments, and for each call of this job."""
        if "key" in options:
            raise BadInput(
                f"{self._where}: one key for many tasks would enqueue one; give each call its own: "
                f"{self._job.name}.options(key=…).call(…)"
            )
        trace, plain = carried(), self.plain
        if not options and self._job.keys is None:
            return [plain(one, {}, trace) if type(one) is tuple else self._of_call(one, {}, trace) for one in calls]
        tasks = [self._of_call(one, options, trace) for one in calls]
        self._rules_of(options).refuse_repeats(tasks)
        return tasks

    def _of_call(self, call: object, options: EnqueueOptions, trace: dict[str, str] | None) -> NewTask:
        """Make the task of one of many calls; its own options override those of all."""
        if isinstance(call, tuple):
            return self.special(tuple(call), {}, options, trace, together=True)
        if not isinstance(call, JobCall):
            raise BadInput(
                f'{self._where}: enqueue_many takes one tuple of arguments per task, as [("a",), ("b",)], or calls, as '
                f"[{self._job.name}.call(…), …]; got {shown(call)}"
            )
        if call.job is not self._job:
            raise BadInput(f"{self._where}: {call!r} is a call of another job: write app.group([…]) for several jobs")
        own = options | call.options_beside_others("one call of many: pass it to enqueue_many, for all of them")
        if own or self._job.keys is not None:
            return self.special(call.args, dict(call.kwargs), own, trace, together=True)
        return self.plain(call.args, dict(call.kwargs), trace)

    def plain(self, args: tuple[Any, ...], kwargs: dict[str, Any], trace: dict[str, str] | None) -> NewTask:
        """Make the task of a call without options, for a job without keys."""
        job = self._job
        return NewTask(
            name=job.name,
            args=self._shape.encode(args, kwargs, trace),
            queue=job.queue,
            priority=job.priority,
            timeout_s=job.timeout_s,
            limit=None if job.limits is None else job.limits.limit_of(args, kwargs),
            version=job.version,
        )

    def special(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: EnqueueOptions,
        trace: dict[str, str] | None,
        *,
        together: bool = False,
    ) -> NewTask:
        """Make the task of a call with options, or of a job with keys; `together`: one of several, all or none."""
        check_options(self._where, options, EnqueueOptions)
        task = self.plain(args, kwargs, trace)
        key = options.get("key")
        if key is None and self._job.keys is not None and "key" not in options:
            key = self._job.keys.key_of(args, kwargs)
        return self._with_options(task, options, key, together=together)

    def with_deferred_argument(
        self, mark: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: EnqueueOptions
    ) -> NewTask:
        """Make the task of a call whose first argument comes later; `mark`: the JSON member that names it."""
        job = self._job
        if job.runs_in_process and mark != TAKES_RESULT:
            raise BadInput(
                f"{self._where} runs in a process of its own, where there is no group: make the callback a job "
                'without run="process", which may enqueue this one'
            )
        task = NewTask(
            name=job.name,
            args=self.later.encode(mark, args, kwargs, carried()),
            queue=job.queue,
            timeout_s=job.timeout_s,
            limit=self.later.limit_of(job.limits, args, kwargs),
            version=job.version,
        )
        if job.keys is not None and job.keys.of_call is not None and "key" not in options:
            raise BadInput(
                f"{self._where}: its key= needs its first argument, which another task gives it later; give this "
                "call a key: job.options(key=…).call(…)"
            )
        return self._with_options(task, options, options.get("key"))

    def refuse_taken(
        self,
        tasks: Sequence[NewTask],
        answers: Sequence[Enqueued],
        options: EnqueueOptions,
        handle: Callable[[int], Any],
    ) -> None:
        """Raise `KeyTaken` if the call has on_conflict="reject" and another task has the key of one of its tasks."""
        if self._job.keys is None and "on_conflict" not in options:
            return
        rules = self._rules_of(options)
        for task, enqueued in zip(tasks, answers, strict=True):
            rules.refuse(task, enqueued, handle)

    def _with_options(
        self, task: NewTask, options: EnqueueOptions, key: str | None, *, together: bool = False
    ) -> NewTask:
        job, where = self._job, self._where
        if key is not None:
            key = checked_key(where, key)
        unique = self._unique(options, key, together=together)
        given = "priority" in options
        return msgspec.structs.replace(
            task,
            key=key,
            waits_briefly=key is not None,
            priority=checked_priority(f"{where}: priority", options["priority"]) if given else job.priority,
            delay_s=delay_s_of(f"{where}: delay", options["delay"], job.jobs.wall) if "delay" in options else 0.0,
            unique=unique,
            # Ended tasks are found by their key only if they are indexed.
            indexed=unique is not None and unique.for_s is not None,
        )

    def _unique(self, options: EnqueueOptions, key: str | None, *, together: bool) -> Unique | None:
        rules = self._job.keys
        if "on_conflict" in options or "unique_for" in options:
            rules = self._rules_of(options)
            if key is None and rules.of_call is None:
                raise BadInput(
                    f"{self._where}: on_conflict= and unique_for= are about a key, and this call has no key="
                )
        return None if rules is None or key is None else rules.unique(together=together)

    def _rules_of(self, options: EnqueueOptions) -> KeyRules:
        return (self._job.keys or KeyRules(self._where)).changed(options)
