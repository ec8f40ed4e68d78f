"""Flows: tasks that wait for other tasks. They are enqueued together, and the end of one makes the next due.

    blocked ──all tasks that it waits for have ended──▶ queued
       │
       └── takes "result", and the task before failed or was canceled ──▶ canceled, and so are those after it

Promises: a flow is enqueued whole or not at all. The end of a task is reported once to the task that waits for it, in
the same transaction: if the task is retried and ends again, that is not reported, unless the waiting task takes "end"
and was retried, too. It then waits again for those of its tasks that are live.

A task that takes "result" has arguments that are a JSON object, and no member `input`: the result of the task before
becomes that member. The store splices it in, and reads nothing else of the arguments.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

from everpoll.errors import BadInput

if TYPE_CHECKING:
    from everpoll.stores.contract import EndState, Enqueued, NewTask, TaskInfo, TaskState

GROUP_KIND = "group"
"""The kind of tasks that only end a group: every worker runs them, whatever it registers."""
Takes = Literal["result", "end"]
BLOCKED_LINE = 5
"""The line of tasks that wait for other tasks; no lease reads it."""
INPUT = '{"input":'
"""The beginning of arguments that contain the result of the task before."""


class FlowTask(Struct, frozen=True, gc=False):
    """One task of a flow."""

    task: "NewTask"
    """The task; its delay begins when it no longer waits for other tasks."""
    then: int | None = None
    """The index of the task that waits for this one; it comes earlier in the list."""
    takes: Takes | None = None
    """result: it waits for one task, takes its result, and is canceled if that task is not done. end: it waits until
    all its tasks have ended with any outcome; there may be none. None: it waits for no task."""


class Flows(Protocol):
    """The part of a store that knows about tasks that wait for others."""

    async def enqueue_flow(self, flow: "Sequence[FlowTask]") -> "list[Enqueued]":
        """Enqueue all or none, and return their ids in the order of the call; wake workers.

        If a live task has the key of one of them, nothing is enqueued: the answer has the id of that live task at its
        place and 0 at the others, and none is new. Raises `BadInput` for an invalid flow, or two equal keys in it.
        """
        ...

    async def members(self, task_id: int, after: int = 0, limit: int = 1000) -> "list[TaskInfo]":
        """Return the tasks that this one waits for, or waited for, with ids above `after`, in one snapshot."""
        ...

    async def member_counts(self, task_id: int) -> "dict[TaskState, int]":
        """Return how many of the tasks that this one waits for, or waited for, are in each state."""
        ...


class Link(NamedTuple):
    """The end of a task, as it is reported to the task that waits for it."""

    then_id: int
    state: "EndState"
    result: str | None
    cause_id: int
    """The task that caused this end: of a chain, the task that failed, not those that were canceled for it."""
    cause_name: str
    cause_state: "EndState"


class Blocked(NamedTuple):
    """A live task that waits for others."""

    id: int
    takes: Takes
    blockers: int


class EndReports(NamedTuple):
    """What the ends of several tasks change in the tasks that wait for them."""

    fewer: list[tuple[int, int]]
    """Ids of tasks, and how many other tasks each still waits for."""
    unblocked: list[tuple[int, str | None]]
    """Ids of tasks that may run now, and the result that each takes; None: it takes none."""
    canceled: list[tuple[int, Link]]
    """Ids of canceled tasks, and the end that caused it."""


def apply_ends(links: Iterable[Link], blocked: Iterable[Blocked]) -> EndReports:
    """Decide what these ends change in these blocked tasks; links to other tasks are ignored."""
    ended = list(links)
    ends, last = Counter(link.then_id for link in ended), {link.then_id: link for link in ended}
    reports = EndReports([], [], [])
    for one in blocked:
        link = last.get(one.id)
        if link is None:
            continue
        if one.takes == "result":
            if link.state == "done":
                reports.unblocked.append((one.id, link.result or "null"))
            else:
                reports.canceled.append((one.id, link))
        elif one.blockers > ends[one.id]:
            reports.fewer.append((one.id, one.blockers - ends[one.id]))
        else:
            reports.unblocked.append((one.id, None))
    return reports


def cause_of(link: Link) -> dict[str, object]:
    """Return the note of a task that is canceled because the task before it was not done."""
    how = "failed" if link.cause_state == "failed" else "was canceled"
    why = f"task {link.cause_id} ({link.cause_name}), which comes before it, {how}"
    return {"what": "canceled", "why": why, "cause": link.cause_id, "cause_name": link.cause_name}


def with_input(args: str, result: str) -> str:
    """Insert the result that a call takes into its stored arguments."""
    return f"{INPUT}{result},{args[1:]}"


def blockers_of(flow: Sequence[FlowTask]) -> list[int]:
    """Return for each task how many others it waits for."""
    blockers = Counter(one.then for one in flow)
    return [blockers[place] for place in range(len(flow))]


def check_flow(flow: Sequence[FlowTask]) -> None:
    """Raise `BadInput` for tasks that cannot be enqueued together in this order."""
    keys: set[tuple[str, str]] = set()
    for place, (one, blockers) in enumerate(zip(flow, blockers_of(flow), strict=True)):
        task = one.task
        if one.then is not None and not (0 <= one.then < place and flow[one.then].takes is not None):
            raise BadInput(f"task {task.name!r}: what waits for it must come before it, and take its result or its end")
        if one.takes == "result" and (blockers != 1 or not task.args.startswith('{"') or task.args.startswith(INPUT)):
            raise BadInput(f"task {task.name!r}: it must wait for one task, with a JSON object for its arguments")
        if task.once or task.events or task.cancels_itself:
            raise BadInput(f"task {task.name!r}: no task of a flow may have once, events or cancels_itself")
        if task.key is not None:
            if (task.kind, task.key) in keys:
                raise BadInput(f"task {task.name!r}: two tasks that are enqueued together have the key {task.key!r}")
            keys.add((task.kind, task.key))
