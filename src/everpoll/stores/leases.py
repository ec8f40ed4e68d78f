"""Leases: a leased task, and its settlements."""

from collections.abc import Sequence

from msgspec import Struct

from everpoll.stores.new_tasks import NewEvent, NewTask
from everpoll.stores.task_states import EndState

LEASE_LIMIT = 500
"""The largest batch that one statement leases: larger ones gain nothing, and the planner may choose another plan."""
RESCUE_LIMIT = 3
"""A task whose worker died this many times is poison: it ends as failed, with that reason."""
DEADLINE_GRACE_S = 5.0
"""A worker cancels its own handlers at their deadline. A handler that still runs this much later is overdue: the rescue
takes its task back."""


class Lease(Struct, frozen=True, gc=False):
    """One leased task, as its worker holds it. (incarnation, `sequence`) is its fence."""

    id: int
    sequence: int
    attempt: int
    """The number of this attempt, from 1."""
    name: str
    queue: str
    args: str
    memory: str | None = None
    key: str | None = None
    rescues: int = 0
    version: int = 1
    cancel_requested: bool = False
    limit_key: str | None = None

    @property
    def label(self) -> str:
        """The label of the task in logs."""
        return f"{self.name}#{self.id}"


ALIKE_SHARE = 1 / 32
"""Waiting times that differ by less than this share of the shortest one are reported as one: reporting each of a large
batch costs a fifth of leasing it."""


class Leased(Struct, frozen=True, gc=False):
    """The answer of one call of `lease`."""

    leases: list[Lease]
    next_due_s: float | None = None
    """Seconds until the next waiting task of these queues falls due; None if none waits, or if the lease was full."""
    missed: int = 0
    """How many due tasks other workers leased at the same moment; this is not an error."""
    at: float = 0.0
    """The time of the lease by the store's own wall clock, in seconds since the epoch."""
    is_all: bool = False
    """True if nothing else was due, as far as there was room: a caller with push may rest until `next_due_s`."""
    waited_us: Sequence[float] = ()
    """How long each task had been due, in microseconds; a single value if all differ by less than ALIKE_SHARE; empty if
    unknown."""
    is_costly: bool = False
    """True if the poll had to count for limits: its caller should rather ask seldom, for many slots at once."""


class Ended(Struct, frozen=True, gc=False):
    """Settle: the task has ended and moves to history."""

    id: int
    sequence: int
    state: EndState = "done"
    result: str | None = None
    note: str | None = None
    """A JSON object for the trail; the store adds `at` and `by`. None: the ordinary end needs no note."""
    events: tuple[NewEvent, ...] = ()
    """Written with the settlement, unless it was lost."""
    follow_ups: tuple[NewTask, ...] = ()
    """Enqueued with the settlement, in its transaction, unless it was lost."""


class Again(Struct, frozen=True, gc=False):
    """Settle: the task is due again.

    A cancel that was requested meanwhile wins and ends it instead, unless the task cancels itself.
    """

    id: int
    sequence: int
    delay_s: float | None = None
    """None: the task keeps its due time, and so its place in line, as when it is handed back."""
    refund: bool = False
    """True: the attempt does not count, as for a snooze or a hand-back."""
    note: str | None = None
    memory: str | None = None
    """The new memory of the task. It resets the count of rescues, so that a task that runs for days is not poison only
    because three workers died meanwhile."""
    events: tuple[NewEvent, ...] = ()
    """Written with the settlement, unless it was lost."""
    follow_ups: tuple[NewTask, ...] = ()
    """Enqueued with the settlement, in its transaction, unless it was lost."""
    set_aside: bool = False
    """True: this worker cannot run the task. Other workers are woken, and one that can run it calls
    `release_set_aside`. The note is made by `set_aside_note`."""


Settlement = Ended | Again
