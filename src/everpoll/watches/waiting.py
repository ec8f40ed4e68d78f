"""What callers wait for: the outcome of a run, or its next events. Many runs are read in two statements.

Promises: a caller hears of an outcome as soon as it is committed, before the cleanup. Whoever asks for events behind a
number misses none: the state is read first, so that where it has ended its last event is there.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from everpoll.engine.waiters import Cadence, Waiter, Waiters
from everpoll.errors import TaskNotFound
from everpoll.policy import Backoff
from everpoll.stores.contract import Event, Store, TaskInfo

CADENCE = Cadence(Backoff("50ms", factor=1.5, cap="1s", jitter=0), sweep_s=5.0, follows_events=True)
EVENTS_LIMIT = 10_000
"""Events of all tasks together that one statement reads, or a little more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller waits for."""

    after: int | None = None
    """Events behind this number, or the end of the run where there are none; None: its outcome."""
    now: bool = False
    """Do not wait: answer with what there is."""


Seen: TypeAlias = tuple[TaskInfo, list[Event]]


class RunWaiters(Waiters[Wanted, Seen]):
    """The callers of one process that wait for runs."""

    def __init__(self, store: Store) -> None:
        closed = "the app was closed before the run had ended; ask for it again later"
        super().__init__(store, self._answer, CADENCE, closed)

    async def _answer(self, waiters: Sequence[Waiter[Wanted, Seen]]) -> None:
        behind: dict[int, int] = {}
        for one in waiters:
            after = one.question.after
            if after is not None:
                behind[one.task_id] = min(after, behind.get(one.task_id, after))
        tasks = await self._store.info(list({one.task_id for one in waiters}))
        events: defaultdict[int, list[Event]] = defaultdict(list)
        if behind:
            for event in await self._store.events_of(behind, max(1, EVENTS_LIMIT // len(behind))):
                events[event.task_id].append(event)
        for one in waiters:
            task = tasks.get(one.task_id)
            if task is None:
                one.refuse(TaskNotFound(f"no run has the task {one.task_id}: its history was dropped"))
                continue
            after = one.question.after
            if after is None:
                seen, is_news = [], has_outcome(task)
            else:
                seen = [event for event in events[one.task_id] if event.seq > after]
                is_news = bool(seen) or task.ended_at is not None
            if is_news or one.question.now:
                one.tell((task, seen))


def has_outcome(task: TaskInfo) -> bool:
    """Whether the run has its outcome; a task that has ended by itself, or was ended by a rescue, has one as well."""
    return task.ended_at is not None or (isinstance(task.memory, dict) and task.memory.get("outcome") is not None)
