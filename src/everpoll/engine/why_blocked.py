"""Why a task that waits for other tasks does not start yet: the names and the states of those tasks.

`predecessors_of` asks the store; `why_blocked` is pure, as `why` is.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from everpoll.engine.why import Why, recorded
from everpoll.stores.contract import LIVE_STATES, Store, TaskInfo, TaskState

SHOWN = 10
"""How many tasks are named."""
WORDS = {"queued": "is queued", "running": "runs", "done": "is done", "failed": "failed", "canceled": "was canceled"}


class Predecessors(Struct, frozen=True):
    """The tasks that must end before another one starts."""

    counts: Mapping[TaskState, int]
    first: Sequence[TaskInfo]
    """Some of them, those that have not ended first."""


async def predecessors_of(store: Store, task: TaskInfo) -> Predecessors | None:
    """Return the tasks that must end before this one starts; None if it never waited for any."""
    if task.takes is None:
        return None
    page = await store.members(task.id)
    first = sorted(page, key=lambda one: one.ended_at is not None)[:SHOWN]
    return Predecessors(await store.member_counts(task.id), first)


def why_blocked(task: TaskInfo, predecessors: Predecessors) -> Why:
    """Explain which tasks a blocked task waits for."""
    live = sum(predecessors.counts.get(state, 0) for state in LIVE_STATES)
    records = tuple(recorded(entry) for entry in task.trail)
    if live == 0:
        return Why(
            "It waits for a task that has ended without telling it, as under a worker of a release without chains.",
            records,
            f"it will not start: run `everpoll jobs cancel {task.id}`, and enqueue it anew",
        )
    named = tuple(named_task(one) for one in predecessors.first if one.ended_at is None)
    if task.takes == "result":
        return Why(
            f"It waits for {named[0]}.",
            records,
            f"ask why that one does not end: `everpoll why {predecessors.first[0].id}`",
        )
    states = ", ".join(f"{count} {state}" for state, count in sorted(predecessors.counts.items()))
    total = sum(predecessors.counts.values())
    return Why(f"It waits for {task.blockers} of {total} tasks of its group.", (states, *named, *records))


def named_task(task: TaskInfo) -> str:
    """Return a task with its name and state."""
    state = "waits for other tasks" if task.blockers else WORDS[task.state]
    return f"task {task.id} ({task.name}), which {state}"
