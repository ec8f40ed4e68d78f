"""Groups: calls that run side by side, and a callback that runs once all of them have ended.

    group = await app.group([fetch.call(url) for url in urls]).then(report, 42).enqueue()

Promises: members and callback are enqueued in one transaction, or none. The callback runs once, when all members have
ended with any outcome; for an empty group it runs at once. Its first argument is the group. If there is no callback, an
internal task of everpoll ends the group.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from everpoll.engine.actors import action
from everpoll.engine.work import Run
from everpoll.errors import BadInput, JobCanceled, JobFailed, TaskNotFound
from everpoll.jobs.flows import Chain, JobCall, call_of, enqueue_flow
from everpoll.policy import Duration, human, seconds, shown
from everpoll.policy.storable_texts import ERROR_LIMIT, storable
from everpoll.stores.contract import END_STATES, Ended, Enqueued, NewTask, Settlement, Store, TaskInfo, TaskState
from everpoll.stores.flows import GROUP_KIND, FlowTask

if TYPE_CHECKING:
    from everpoll.jobs.job import Job
    from everpoll.jobs.registry import Jobs
    from everpoll.jobs.sync import SyncCalls

T = TypeVar("T")
NAME = "everpoll.group"
"""The name of the task that ends a group without a callback."""
PAGE = 1_000


class GroupInfo(Struct, frozen=True, kw_only=True):
    """The progress of a group. Members that history has dropped count in `total` only."""

    id: int
    """The id of the task that waits for the members."""
    state: TaskState
    """The state of that task: "queued" while members have not ended."""
    total: int
    queued: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    canceled: int = 0

    @property
    def ended(self) -> int:
        """How many members have ended."""
        return self.done + self.failed + self.canceled


async def group_info(store: Store, task: TaskInfo) -> GroupInfo | None:
    """Return the progress of the group that this task waits for, or waited for; None if there is none."""
    if task.takes != "end":
        return None
    counts: dict[Any, int] = dict(await store.member_counts(task.id))
    total = task.args.get("group") if isinstance(task.args, dict) else None
    return GroupInfo(
        id=task.id, state=task.state, total=total if isinstance(total, int) else sum(counts.values()), **counts
    )


class NewGroup:
    """A group that is not enqueued yet: `app.group(calls)`."""

    def __init__(
        self, jobs: "Jobs", calls: Iterable[JobCall[Any] | Chain], callback: JobCall[Any] | None = None
    ) -> None:
        self._jobs = jobs
        if not isinstance(calls, Iterable):
            raise BadInput(f"{shown(calls)} is not a list of calls: write app.group([job.call(…), …])")
        self._calls = list(calls)
        self._callback = callback
        for call in self._calls:
            if not isinstance(call, JobCall | Chain):
                raise BadInput(f"{shown(call)} is not a call: write app.group([job.call(…), …])")

    def __repr__(self) -> str:
        return f"<group of {len(self._calls)}>"

    def then(self, callback: "Job[..., Any] | JobCall[Any]", *extra: Any) -> "NewGroup":
        """Run a job once all have ended, with the group as first argument and the extra ones after it."""
        if self._callback is not None:
            raise BadInput(f"this group has a callback, {self._callback.job.name!r}: one job may follow a group")
        return NewGroup(self._jobs, self._calls, call_of(callback, extra))

    async def enqueue(self) -> "Group":
        """Enqueue all of them and the callback, or none."""
        answers = await enqueue_flow(self._jobs, self.flow(), NAME)
        return Group(self._jobs, answers[0].id)

    @property
    def sync(self) -> "SyncNewGroup":
        """The same group for programs without an event loop."""
        return SyncNewGroup(self, self._jobs.sync)

    def flow(self) -> list[FlowTask]:
        """Return the tasks, beginning with the callback, which waits for all others."""
        flow: list[FlowTask] = []
        for call in self._calls:
            chain = call if isinstance(call, Chain) else Chain((call,))
            flow += chain.flow(then=0, start=len(flow) + 1)
        mark = f'"group":{len(self._calls)}'
        if self._callback is not None:
            last = self._callback.task_with_deferred_argument(mark)
        else:
            queue = flow[0].task.queue if flow else self._jobs.any_queue
            last = NewTask(name=NAME, kind=GROUP_KIND, queue=queue, args=f'{{{mark},"args":[],"kwargs":{{}}}}')
        return [FlowTask(last, None, "end"), *flow]


class Group:
    """A group that was enqueued. The callback of a group receives it as first argument."""

    __slots__ = ("_jobs", "id")

    def __init__(self, jobs: "Jobs", task_id: int) -> None:
        self._jobs = jobs
        self.id = task_id
        """The id of the task that waits for the members: of the callback."""

    def __repr__(self) -> str:
        return f"<Group {self.id}>"

    @property
    def sync(self) -> "SyncGroup":
        """The same calls for programs without an event loop, and for callbacks that are plain functions."""
        return SyncGroup(self._jobs.sync, self.id)

    async def info(self) -> GroupInfo:
        """Count the members by their state."""
        store = await self._jobs.store()
        counts: dict[Any, int] = dict(await store.member_counts(self.id))
        last = await self._last()
        return GroupInfo(id=self.id, state=last.state, total=int(last.args["group"]), **counts)

    async def results(self, return_exceptions: bool = False) -> list[Any]:
        """Wait until all members have ended; return their results in the order of the calls.

        If a member failed or was canceled, this raises its error; with `return_exceptions`, it returns the error in
        place of the result. Raises `TaskNotFound` if the history no longer has all members.
        """
        total = int((await self._last()).args["group"])
        found = [self._jobs.handle(one.id, is_known=True) async for one in self._members()]
        if len(found) < total:
            raise TaskNotFound(
                f"group {self.id}: {total - len(found)} of its {total} tasks are gone: they ended longer ago than "
                "history is kept, or were deleted"
            )
        answers = await asyncio.gather(*(one.result() for one in found), return_exceptions=True)
        errors = [one for one in answers if isinstance(one, BaseException)]
        for error in errors:
            if not return_exceptions or not isinstance(error, JobFailed | JobCanceled):
                raise error
        return answers

    async def wait(self, timeout: Duration | None = None) -> GroupInfo:  # noqa: ASYNC109 - the API's own word
        """Wait until all members and the callback have ended, however they did; `TimeoutError`: not in time."""
        limit_s = None if timeout is None else seconds(timeout, name="timeout")
        await self._last()  # raises for an id that does not exist, for which this would wait for ever
        results = await self._jobs.results()
        try:
            async with asyncio.timeout(limit_s):
                await results.wait(self.id)
                # The callback may have been canceled alone, and members may run again after a retry.
                counts = await (await self._jobs.store()).member_counts(self.id)
                if not counts.keys() <= {*END_STATES}:
                    left = [one.id async for one in self._members() if one.ended_at is None]
                    await asyncio.gather(*(results.wait(task_id) for task_id in left))
        except TimeoutError:
            info = await self.info()
            if limit_s is None:
                raise
            if info.state in END_STATES and not info.queued + info.running:
                return info
            raise TimeoutError(
                f"group {self.id} has not ended within {human(limit_s)}: {info.ended} of its {info.total} tasks have; "
                f"`everpoll why {self.id}` tells what it waits for"
            ) from None
        return await self.info()

    async def cancel(self, reason: str = "its group was canceled", *, by: str = "") -> int:
        """Cancel the callback and all members that have not ended; return how many tasks that were."""
        store = await self._jobs.store()
        note = action("cancel", by, storable(reason, ERROR_LIMIT))
        # The callback first: it must not run because the members were canceled.
        states = await store.cancel_many([(self.id, note)]) if (await self._last()).ended_at is None else []
        waiting = [self.id]
        while waiting:
            members = [one async for one in self._members(waiting.pop()) if one.ended_at is None]
            # The member of a chain is its last task, from which the tasks before it are found.
            waiting += [one.id for one in members if one.blockers]
            states += await store.cancel_many([(one.id, note) for one in members])
        return sum(state is not None for state in states)

    async def _members(self, task_id: int | None = None) -> AsyncIterator[TaskInfo]:
        store = await self._jobs.store()
        page = await store.members(self.id if task_id is None else task_id, limit=PAGE)
        while page:
            for one in page:
                yield one
            page = await store.members(page[-1].then_id or 0, after=page[-1].id, limit=PAGE)

    async def _last(self) -> TaskInfo:
        found = (await (await self._jobs.store()).info([self.id])).get(self.id)
        if found is None or not isinstance(found.args, dict) or "group" not in found.args:
            raise TaskNotFound(f"no group {self.id}: it never existed here, or its history was dropped")
        return found


class SyncNewGroup:
    """`app.group(…).sync`: for programs without an event loop."""

    __slots__ = ("_calls", "_group")

    def __init__(self, group: NewGroup, calls: "SyncCalls") -> None:
        self._group = group
        self._calls = calls

    def enqueue(self) -> "SyncGroup":
        """Enqueue all of them and the callback, or none."""
        flow = self._group.flow()

        async def ask(jobs: "Jobs") -> list[Enqueued]:
            return await enqueue_flow(jobs, flow, NAME)

        return SyncGroup(self._calls, self._calls.call(ask, "await app.group(…).enqueue()")[0].id)


class SyncGroup:
    """A group, for programs without an event loop."""

    __slots__ = ("_calls", "id")

    def __init__(self, calls: "SyncCalls", task_id: int) -> None:
        self._calls = calls
        self.id = task_id

    def __repr__(self) -> str:
        return f"<SyncGroup {self.id}>"

    def info(self) -> GroupInfo:
        """Return how many members are in which state."""
        return self._asked(lambda group: group.info(), "info()")

    def results(self, return_exceptions: bool = False) -> list[Any]:
        """Wait until all members have ended; return their results in the order of the calls."""
        return self._asked(lambda group: group.results(return_exceptions), "results()")

    def wait(self, timeout: Duration | None = None) -> GroupInfo:
        """Wait until all members and the callback have ended, however they did; `TimeoutError`: not in time."""
        return self._asked(lambda group: group.wait(timeout), "wait()")

    def cancel(self, reason: str = "its group was canceled", *, by: str = "") -> int:
        """Cancel the callback and all members that have not ended; return how many tasks that were."""
        return self._asked(lambda group: group.cancel(reason, by=by), "cancel()")

    def _asked(self, ask: Callable[[Group], Coroutine[Any, Any, T]], what: str) -> T:
        return self._calls.call(lambda jobs: ask(Group(jobs, self.id)), f"await group.{what}")


async def end_group(run: Run) -> Settlement:
    """End the task of a group without a callback: all members have ended."""
    return Ended(run.lease.id, run.lease.sequence)
