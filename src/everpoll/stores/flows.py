"""Flows: tasks that wait for other tasks. They are enqueued together, and the end of one makes the next due.

    blocked ──all that lead to it have ended──▶ queued
       │
       └── takes "result", and the task before failed or was canceled ──▶ canceled, and so are those after it

Promises: a flow is enqueued whole or not at all. An end tells the task that waits for it in the transaction that ends
it, and once: a task that is retried after its end tells nothing when it ends again, unless the task that waits for the
end of several was retried, too. That one waits again for those that live then.

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
"""Where databases keep tasks that wait for others: no look for work reads it."""
INPUT = '{"input":'
"""How arguments begin that have got the result of the task before."""


class FlowTask(Struct, frozen=True, gc=False):
    """One task of a flow."""

    task: "NewTask"
    """Its delay begins when it waits for no other task any more."""
    then: int | None = None
    """The place in the call of the task that waits for this one. It comes before this one."""
    takes: Takes | None = None
    """result: waits for one task, takes its result, and is canceled if that one is not done. end: waits until all tasks
    that lead to it have ended, however; without any, it waits for none."""


class Flows(Protocol):
    """The part of a store that knows about tasks that wait for others."""

    async def enqueue_flow(self, flow: "Sequence[FlowTask]") -> "list[Enqueued]":
        """Enqueue all or none, and return their ids in the order of the call; wake workers.

        Where a live task has the key of one of them, nothing is enqueued: the answer then is the holder's id in that
        place, 0 in the others, and none is new. `BadInput`: not a valid flow, or two equal keys in it.
        """
        ...

    async def members(self, task_id: int, after: int = 0, limit: int = 1000) -> "list[TaskInfo]":
        """Return the tasks that lead to this one, by id after `after`, live or in history; read in one snapshot."""
        ...

    async def member_counts(self, task_id: int) -> "dict[TaskState, int]":
        """Return how many tasks that lead to this one are in which state."""
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
    """Ids, and how many tasks each still waits for."""
    unblocked: list[tuple[int, str | None]]
    """Ids, and the result that each takes; None: it takes none."""
    canceled: list[tuple[int, Link]]
    """Ids, and because of which end."""


def tell(links: Iterable[Link], blocked: Iterable[Blocked]) -> EndReports:
    """Decide what these ends do to these blocked tasks; a link to any other task does nothing."""
    ended = list(links)
    ends, last = Counter(link.then_id for link in ended), {link.then_id: link for link in ended}
    telling = EndReports([], [], [])
    for one in blocked:
        link = last.get(one.id)
        if link is None:
            continue
        if one.takes == "result":
            if link.state == "done":
                telling.unblocked.append((one.id, link.result or "null"))
            else:
                telling.canceled.append((one.id, link))
        elif one.blockers > ends[one.id]:
            telling.fewer.append((one.id, one.blockers - ends[one.id]))
        else:
            telling.unblocked.append((one.id, None))
    return telling


def cause_of(link: Link) -> dict[str, object]:
    """Return the note of a task that is canceled because the one before was not done: which, and how that ended."""
    how = "failed" if link.cause_state == "failed" else "was canceled"
    why = f"task {link.cause_id} ({link.cause_name}), which comes before it, {how}"
    return {"what": "canceled", "why": why, "cause": link.cause_id, "cause_name": link.cause_name}


def with_input(args: str, result: str) -> str:
    """Insert the result that a call takes into its stored arguments."""
    return f"{INPUT}{result},{args[1:]}"


def blockers_of(flow: Sequence[FlowTask]) -> list[int]:
    """Return how many tasks lead to each."""
    leading = Counter(one.then for one in flow)
    return [leading[place] for place in range(len(flow))]


def check_flow(flow: Sequence[FlowTask]) -> None:
    """Raise `BadInput` for tasks that cannot be enqueued together in this order."""
    keys: set[tuple[str, str]] = set()
    for place, (one, leading) in enumerate(zip(flow, blockers_of(flow), strict=True)):
        task = one.task
        if one.then is not None and not (0 <= one.then < place and flow[one.then].takes is not None):
            raise BadInput(f"task {task.name!r}: what waits for it must come before it, and take its result or its end")
        if one.takes == "result" and (leading != 1 or not task.args.startswith('{"') or task.args.startswith(INPUT)):
            raise BadInput(f"task {task.name!r}: it must wait for one task, with a JSON object for its arguments")
        if task.once or task.events or task.cancels_itself:
            raise BadInput(f"task {task.name!r}: no task of a flow may begin once, bring events or cancel itself")
        if task.key is not None:
            if (task.kind, task.key) in keys:
                raise BadInput(f"task {task.name!r}: two tasks that are enqueued together have the key {task.key!r}")
            keys.add((task.kind, task.key))
