"""Operations of people on tasks and queues, each recorded in the log.

Every operation takes a note: a JSON object with `what`, and mostly `by` (the actor) and `why`. The store writes the
note in the same transaction as the change, to the task's trail and, as an event, to the feed.

Promises: a change and its event are written together, or neither is. Events of operators have negative
numbers: a reader of a task's own events never meets them, and a reader of the feed always does.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from everpoll.stores.contract import Event, TaskState

UNNUMBERED = -1
"""The number of a `NewEvent` that is not the task's own: the store gives it a negative number that no other has."""
BATCH_LIMIT = 500
"""How many tasks one statement retries or deletes; a longer list takes several transactions."""


class LogEntry(Struct, frozen=True, gc=False):
    """An event that is written on its own, not with another change."""

    kind: str
    """Of the task that it is about; without one: "queue", "loop", "bulk", "service" …"""
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
    """Due at once, also with the arguments that it has."""
    expects: str | None = None
    """Only if these are its arguments: what was read, changed and is written back overwrites no change in between."""
    task_id: int | None = None
    """In place of kind and key."""
    only_queued: bool = False
    """A task that runs stays as it is, and is answered with None."""
    keeps_due: bool = False
    """New arguments leave its due time alone."""
    note: str | None = None
    """For the trail and the feed, if the task is changed."""


class Retried(Struct, frozen=True, gc=False):
    """What became of a request to retry."""

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
    """The part of a store that people use through the command line, the HTTP interface and Python."""

    async def cancel(self, task_id: int, note: str) -> "TaskState | None":
        """End a queued task as canceled, ask a running one to end; return its state after that, None: not known.

        A queued task that cancels itself is asked, too: it is due at once, and its lease says so. The event carries the
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
        A task that runs goes on with the arguments that its lease brought, and is due again at once when it settles.
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
        """Forget ended tasks, each with a note for the feed; answers in the order of the requests. Events stay.

        BATCH_LIMIT of them are one transaction.
        """
        ...

    async def pause(self, queue: str, reason: str, by: str) -> None:
        """Have no worker lease from the queue until `resume`; what runs goes on. Repeated, it replaces the reason.

        A lease that is under way at that moment may still bring tasks of the queue; none that begins later does.
        """

    async def resume(self, queue: str, by: str) -> bool:
        """Have workers lease from the queue again, and wake them; return False if it was not paused."""
        ...

    async def paused(self) -> dict[str, Pause]:
        """Return the queues that are paused, by name."""
        ...

    async def release_set_aside(self, versions: Mapping[str, int], queues: Sequence[str], limit: int) -> int:
        """Make tasks due that other workers have set aside, the oldest first; return how many.

        `versions`: the names that the asking worker can run, each with the newest version of its arguments; `queues`:
        those that it serves. No worker is woken: the asking worker looks next, before others lease them in vain.
        """
        ...

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """Write events that belong to no other change: all or none, in order."""

    async def actions_of(self, task_id: int, limit: int = 1000) -> "list[Event]":
        """Return what was done to a task from outside, oldest first: the events with negative numbers."""
        ...
