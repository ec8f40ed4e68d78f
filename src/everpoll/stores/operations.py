"""Operations of people on tasks and queues, each recorded in the log.

Every operation takes a note: a JSON object with `what`, and mostly `by` (the actor) and `why`. The store writes the
note in the same transaction as the change, to the task's trail and, as an event, to the feed.

Promises: a change and its event are written together, or neither is. Events of operators have negative numbers: they
are in the feed, but not among the events of a task.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from everpoll.stores.contract import Event, TaskState

UNNUMBERED = -1
"""The number of a `NewEvent` that is not the task's own: the store gives it a unique negative number."""
BATCH_LIMIT = 500
"""How many tasks one statement retries or deletes; a longer list takes several transactions."""


class LogEntry(Struct, frozen=True, gc=False):
    """An event that is written on its own, not with another change."""

    kind: str
    """The kind of its task; if it is about no task: "queue", "loop", "bulk", "service" …"""
    name: str
    body: str
    """A JSON object."""
    key: str | None = None
    task_id: int = 0


class Revision(Struct, frozen=True, gc=False):
    """New arguments for one live task, which make it due at once; equal ones change nothing.

    The task is the one of that kind and key, or the one of that id.
    """

    kind: str = ""
    key: str = ""
    args: str | None = None
    """None keeps its arguments."""
    hurry: bool = False
    """True: make it due at once, even if its arguments stay the same."""
    expects: str | None = None
    """Change the task only if these are its arguments: a caller that read them does not overwrite a change in
    between."""
    task_id: int | None = None
    """The id of the task, in place of kind and key."""
    only_queued: bool = False
    """True: do not change a task that runs; the answer for it is None."""
    keeps_due: bool = False
    """True: new arguments do not change its due time."""
    note: str | None = None
    """The note for the trail and the feed, if the task is changed."""


class Retried(Struct, frozen=True, gc=False):
    """The result of a request to retry."""

    outcome: Literal["queued", "live", "key_taken", "unknown"]
    """queued: it is due again. live: it has not ended. key_taken: another live task has its key."""
    holder: int | None = None
    """The live task that has its key."""


Deleted = Literal["deleted", "live", "unknown"]


class Pause(Struct, frozen=True, kw_only=True):
    """Why no worker leases from a queue."""

    reason: str
    by: str
    at: datetime


class Operations(Protocol):
    """The operations of a store that operators use through the command line, the HTTP API and Python."""

    async def cancel(self, task_id: int, note: str) -> "TaskState | None":
        """End a queued task as canceled, ask a running one to end; return its state then, or None if it is unknown.

        A queued task with `cancels_itself` becomes due at once, and its lease carries the request. The event has the
        state as `state`.
        """
        ...

    async def cancel_many(self, requests: Sequence[tuple[int, str]]) -> "list[TaskState | None]":
        """`cancel` for many tasks, each with its note, in few statements; answers in the order of the requests."""
        ...

    async def revise(self, revisions: Sequence[Revision]) -> list[int | None]:
        """Change live tasks; return their ids in the order of the revisions, None where nothing was changed.

        Nothing is changed if there is no such live task, if it has other arguments than expected, or if it runs and the
        revision is for queued tasks only.
        A task that runs goes on with the arguments of its lease, and is due again at once when it settles.
        """
        ...

    async def retry(self, task_id: int, note: str) -> bool:
        """Put an ended task back in the queue under its own id with fresh attempts; False: see `retry_many`."""
        ...

    async def retry_many(self, requests: Sequence[tuple[int, str]]) -> list[Retried]:
        """`retry` for many tasks, each with its note; answers in the order of the requests.

        BATCH_LIMIT of them are one transaction.
        """
        ...

    async def delete(self, requests: Sequence[tuple[int, str]]) -> list[Deleted]:
        """Delete ended tasks, each with a note for the feed; answers in the order of the requests. Their events stay.

        BATCH_LIMIT of them are one transaction.
        """
        ...

    async def pause(self, queue: str, reason: str, by: str) -> None:
        """Let no worker lease from the queue until `resume`; running tasks go on. A repeated call replaces the reason.

        A lease that is under way at that moment may still bring tasks of the queue; none that begins later does.
        """

    async def resume(self, queue: str, by: str) -> bool:
        """Let workers lease from the queue again, and wake them; return False if it was not paused."""
        ...

    async def paused(self) -> dict[str, Pause]:
        """Return the queues that are paused, by name."""
        ...

    async def release_set_aside(self, versions: Mapping[str, int], queues: Sequence[str], limit: int) -> int:
        """Make tasks due that other workers have set aside, the oldest first; return how many.

        `versions`: the names that the calling worker can run, each with the newest version of its arguments; `queues`:
        those that it serves. Other workers are not woken, because they may lease the tasks in vain; the calling
        worker polls next.
        """
        ...

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """Write events that belong to no other change: all or none, in order."""

    async def actions_of(self, task_id: int, limit: int = 1000) -> "list[Event]":
        """Return the operations on a task, oldest first: its events with negative numbers."""
        ...
