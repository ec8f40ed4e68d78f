"""Waits for the outcome of a run, or for its next events. A few statements read many runs.

Promises: a caller gets the outcome as soon as it is committed, before the cleanup. A caller that asks for the events
after a number misses none: the task is read before its events, so the last event of an ended run is always found.
One answer of the store carries at most STATEMENT_BYTES of payloads, and at least one run.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from everpoll.engine.waiters import Cadence, Waiter, Waiters
from everpoll.errors import TaskNotFound
from everpoll.policy import Backoff
from everpoll.stores import limits
from everpoll.stores.contract import Event, Store, TaskInfo

CADENCE = Cadence(Backoff("50ms", factor=1.5, cap="1s", jitter=0), sweep_s=5.0, follows_events=True)
EVENTS_LIMIT = 10_000
"""About how many events, of all tasks together, one statement reads."""

FEW = 4
"""Up to this many tasks are read without asking for their sizes first: four runs always fit into one answer."""


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """What a caller waits for."""

    after: int | None = None
    """Wait for events after this number, or for the end of the run; None: wait for the outcome."""
    now: bool = False
    """Answer at once with the current state."""


class WaitAnswer(NamedTuple):
    """The answer to a caller."""

    task: TaskInfo | None
    """None only if the caller waits for events."""
    events: list[Event]


class RunWaiters(Waiters[WaitRequest, WaitAnswer]):
    """The callers of one process that wait for runs."""

    def __init__(self, store: Store) -> None:
        closed = "the app was closed before the run had ended; ask for it again later"
        super().__init__(store, self._answer, CADENCE, closed)

    async def _answer(self, waiters: Sequence[Waiter[WaitRequest, WaitAnswer]]) -> Sequence[int]:
        whole = {one.task_id for one in waiters if _wants_row(one)}
        portion, left = await self._fitting(list(whole))
        if left:
            whole.difference_update(left)
            waiters = [one for one in waiters if one.task_id in whole or not _wants_row(one)]
        others = {one.task_id for one in waiters} - whole
        tasks = await self._store.info(portion) if portion else {}
        # A caller that waits for events needs no row: reading rows costs the most.
        ended = await self._store.ended(list(others)) if others else {}
        events = await self._events(waiters)
        for one in waiters:
            task, after = tasks.get(one.task_id), one.question.after
            if task is None and one.task_id in whole:
                one.refuse(TaskNotFound(f"no run has the task {one.task_id}: its history was dropped"))
                continue
            seen = [] if after is None else [event for event in events[one.task_id] if event.seq > after]
            is_over = one.task_id in ended if task is None else _is_over(task, one.question)
            if one.question.now or seen or is_over:
                one.resolve(WaitAnswer(task, seen))
        return left

    async def _fitting(self, task_ids: list[int]) -> tuple[Sequence[int], list[int]]:
        """Return the tasks that one answer has room for, and those that are left for the next one."""
        if len(task_ids) <= FEW:
            return task_ids, []
        sizes = await self._store.sizes(task_ids)
        portion = next(limits.in_portions(task_ids, [sizes.get(one, 0) for one in task_ids], len(task_ids)))
        return portion, task_ids[len(portion) :]

    async def _events(self, waiters: Sequence[Waiter[WaitRequest, WaitAnswer]]) -> defaultdict[int, list[Event]]:
        after_by_task: dict[int, int] = {}
        for one in waiters:
            after = one.question.after
            if after is not None:
                after_by_task[one.task_id] = min(after, after_by_task.get(one.task_id, after))
        found: defaultdict[int, list[Event]] = defaultdict(list)
        if after_by_task:
            for event in await self._store.events_of(after_by_task, max(1, EVENTS_LIMIT // len(after_by_task))):
                found[event.task_id].append(event)
        return found


def _wants_row(waiter: Waiter[WaitRequest, WaitAnswer]) -> bool:
    return waiter.question.after is None or waiter.question.now


def _is_over(task: TaskInfo, wanted: WaitRequest) -> bool:
    return task.ended_at is not None if wanted.after is not None else has_outcome(task)


def has_outcome(task: TaskInfo) -> bool:
    """Return True if the run has its outcome. Every ended task has one, even if a rescue ended it."""
    return task.ended_at is not None or (isinstance(task.memory, dict) and task.memory.get("outcome") is not None)
