"""A leased task, and how it is settled."""

from collections.abc import Sequence

from msgspec import Struct

from everpoll.stores.new_tasks import NewEvent, NewTask
from everpoll.stores.task_states import EndState

LEASE_LIMIT = 500
"""The largest batch that one statement leases: above it the gain is gone, and plans have been seen to flip."""
RESCUE_LIMIT = 3
"""A task whose worker died this many times is poison: it ends as failed, with that reason."""
DEADLINE_GRACE_S = 5.0
"""A worker ends its own handlers at their deadline. A handler that still runs this much later is overdue: the worker
has its task taken back."""


class Lease(Struct, frozen=True, gc=False):
    """One leased task, as its worker holds it. (incarnation, `sequence`) is its fence."""

    id: int
    sequence: int
    attempt: int
    """Counted by the lease: 1 for the first run."""
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
        """What people call it in logs."""
        return f"{self.name}#{self.id}"


ALIKE_SHARE = 1 / 32
"""A share of the shortest waiting time. Reporting each time of a large batch costs a fifth of leasing it."""


class Leased(Struct, frozen=True, gc=False):
    """The answer of one call of `lease`."""

    leases: list[Lease]
    next_due_s: float | None = None
    """Seconds until the next waiting task of these queues falls due; None if none waits, or if the look was full."""
    missed: int = 0
    """Tasks that were seen and then taken by others before we had them: a lost race, not an error."""
    at: float = 0.0
    """When that was, by the store's own wall clock: seconds since the epoch."""
    is_all: bool = False
    """Nothing else was due, as far as there was room: a caller with push may rest until `next_due_s`."""
    waited_us: Sequence[float] = ()
    """How long each of the leases had been due, in microseconds; a single one where those of all differ by less than
    ALIKE_SHARE; empty where that is not known."""


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
    """None keeps its place in the line: a task that is handed back must not lose it."""
    refund: bool = False
    """True refunds the attempt: a snooze or a hand back costs none."""
    note: str | None = None
    memory: str | None = None
    """What the task remembers from now on. A run that writes this has survived, so it resets the count of rescues: a
    task that runs for days is not taken for poison because three workers died meanwhile."""
    events: tuple[NewEvent, ...] = ()
    """Written with the settlement, unless it was lost."""
    follow_ups: tuple[NewTask, ...] = ()
    """Enqueued with the settlement, in its transaction, unless it was lost."""
    set_aside: bool = False
    """This worker cannot run it: workers are woken, and one that can asks for it by `release_set_aside`. Its note says
    so: `set_aside_note` makes it."""


Settlement = Ended | Again
