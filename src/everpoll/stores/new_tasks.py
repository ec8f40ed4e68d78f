"""New tasks: what a caller enqueues in a store, and the answer."""

from typing import Literal

from msgspec import Struct


class NewEvent(Struct, frozen=True, gc=False):
    """An event of a task: a JSON object with a number that is unique in the task; a repeated number is ignored."""

    seq: int
    """The number, from 0; or `operations.UNNUMBERED`, for which the store chooses a negative number."""
    body: str


class Limit(Struct, frozen=True, gc=False):
    """How many tasks of one key may run at a time, and how many may start in any period."""

    key: str
    """All live tasks with this key count together."""
    running: int | None = None
    starts: int | None = None
    per_s: float = 0.0
    """The period in seconds: never more than `starts` leases in any such period; unused starts are not saved up."""

    def ruled_by(self, rule: "Limit | None") -> "Limit":
        """Return a limit with this key and the numbers of another limit."""
        return self if rule is None else Limit(self.key, rule.running, rule.starts, rule.per_s)


OnConflict = Literal["existing", "reject", "replace"]
ON_CONFLICT: tuple[OnConflict, ...] = ("existing", "reject", "replace")


class Unique(Struct, frozen=True, gc=False):
    """What an enqueue does if another task has its key, in place of returning that task."""

    on_conflict: OnConflict = "existing"
    """existing, reject: return the task that has the key, unchanged. replace: a queued task keeps its id and gets all
    values of the new one. A task that runs, or waits for other tasks, goes on without the key, which the new task
    gets."""
    for_s: float | None = None
    """An ended task keeps the key, too, if it was enqueued less than this many seconds ago and is indexed."""
    together: bool = False
    """With reject: if the key is taken, no task of the call is enqueued."""


class NewTask(Struct, frozen=True, gc=False, kw_only=True):
    """A task to enqueue. `args` and `memory` are JSON texts, which the store does not read."""

    name: str
    args: str = "null"
    kind: str = "job"
    queue: str = "default"
    key: str | None = None
    priority: int = 0
    delay_s: float = 0.0
    timeout_s: float | None = None
    """How long one run may take; the lease computes the deadline in the row from it, which the rescue checks."""
    memory: str | None = None
    version: int = 1
    cancels_itself: bool = False
    """True if its front must do something before it ends as canceled, such as to stop a remote operation. A cancel then
    only makes it due."""
    indexed: bool = False
    """True if it can be found by kind, name and key, also after its end, by indexes that cost other tasks nothing."""
    once: bool = False
    """For indexed tasks with a key: an ended task keeps the key as long as history has it, so nothing is begun
    twice."""
    events: tuple[NewEvent, ...] = ()
    """Written with the task, unless the key was taken."""
    limit: Limit | None = None
    """The limit of the task, or None."""
    unique: Unique | None = None
    """For tasks with a key. None: an enqueue returns the live task that has the key."""
    waits_briefly: bool = False
    """For tasks with a key: if another open transaction has locked the key, the enqueue waits only a moment and then
    raises `LockHeld`; the caller tries again. For keys that users take in their own transactions."""


class Enqueued(Struct, frozen=True, gc=False):
    """The id of the new task, or of the task that already has the key."""

    id: int
    """The id; 0 if the task was not enqueued, because another task of the call was rejected (`Unique.together`)."""
    is_new: bool = True
