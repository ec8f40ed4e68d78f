"""What a caller asks a store to enqueue, and the answer."""

from typing import Literal

from msgspec import Struct


class NewEvent(Struct, frozen=True, gc=False):
    """Something that happened to a task: a JSON object, under a number of the task's own; a repeat is ignored."""

    seq: int
    """From 0 on. Or `operations.UNNUMBERED`: the store gives it a negative number."""
    body: str


class Limit(Struct, frozen=True, gc=False):
    """How many tasks of one key may run at a time, and how many may start in any stretch of time."""

    key: str
    """All live tasks with this key count together."""
    running: int | None = None
    starts: int | None = None
    per_s: float = 0.0
    """Never more than `starts` leases in any stretch of so many seconds; nothing is saved up."""

    def ruled_by(self, rule: "Limit | None") -> "Limit":
        """Return the same key under the numbers of another limit."""
        return self if rule is None else Limit(self.key, rule.running, rule.starts, rule.per_s)


OnConflict = Literal["existing", "reject", "replace"]
ON_CONFLICT: tuple[OnConflict, ...] = ("existing", "reject", "replace")


class Unique(Struct, frozen=True, gc=False):
    """What an enqueue does where its key is taken, beyond answering with the live task that has it."""

    on_conflict: OnConflict = "existing"
    """existing, reject: the task that has the key is the answer, unchanged. replace: a queued task
    takes over everything of the new one, under its own id. A task that runs, or waits for other tasks, loses the key to
    the new task and goes on."""
    for_s: float | None = None
    """An ended task with the key answers as well, if it was enqueued less than so many seconds ago and is indexed."""
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
    """How long one run may take; the lease sets the row's deadline from it, for the rescue to see."""
    memory: str | None = None
    version: int = 1
    cancels_itself: bool = False
    """It has something to do before it ends as canceled (a remote operation to stop): a cancel only asks it."""
    indexed: bool = False
    """It is found by its kind, name and key, also after its end, through indexes that other tasks do not pay for."""
    once: bool = False
    """With a key, for indexed tasks: an ended task that history still has answers as well; nothing is begun twice."""
    events: tuple[NewEvent, ...] = ()
    """Written with the task, unless the key was taken."""
    limit: Limit | None = None
    """None: it has no limit, and costs nothing for those of others."""
    unique: Unique | None = None
    """With a key. None: the live task that has the key answers."""
    waits_briefly: bool = False
    """With a key: a transaction elsewhere that has the key and is still open is waited for only a moment; then the
    enqueue is `LockHeld`, and the caller asks again. For keys that users take in transactions of their own."""


class Enqueued(Struct, frozen=True, gc=False):
    """The id of the new task, or of the task that already has the key."""

    id: int
    """0: not enqueued, because another task of the call was rejected (`Unique.together`)."""
    is_new: bool = True
