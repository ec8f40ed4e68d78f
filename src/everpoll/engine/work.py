"""What the engine runs: the seam between it and the fronts.

A front registers one `Work` per name. The engine leases, calls `run`, and settles what it returns; it knows nothing
of functions, retries or looks.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from everpoll.stores.contract import Lease, Settlement


class StopReason(StrEnum):
    """Why the engine cancels a handler."""

    CANCELED = "canceled"
    """Somebody asked for it."""
    SHUTDOWN = "shutdown"
    """The grace period is over."""
    FENCED = "fenced"
    """This worker could not reach the database for too long: others may own the task by now."""
    LOST = "lost"
    """This worker was declared dead: others do own the task."""
    OVERDUE = "overdue"
    """Its deadline has passed, and it goes on although it was canceled."""


class Run(Struct, eq=False):
    """One lease being worked on."""

    lease: Lease
    incarnation: int
    work: "Work | None"
    """How it is run, as it was registered when the lease came; None: nobody here knows the name."""
    stop_reason: StopReason | None = None
    deadline: float | None = None
    """When the call that is under way must have ended, by the event loop's clock. The pool and the heartbeat read it;
    `ends_by` sets it."""
    overdue_at: float | None = None
    """When the pool saw that the deadline has passed."""
    is_abandoned: bool = False
    """The pool has settled the task without waiting for the handler any longer: what the handler returns is ignored."""
    overdue: Callable[[], Settlement] | None = None
    """What becomes of the task if its handler goes on behind its deadline; set by the front. None: the
    rescue takes it back."""
    on_deadline: Callable[[float], None] | None = None
    """The pool's: told of each new deadline."""
    at: float = 0.0
    """The store's clock when it was leased …"""
    began: float = 0.0
    """… and the event loop's."""
    started: float = -1.0
    """When its handler began, by the event loop's clock; below 0: not yet."""

    def ends_by(self, deadline: float | None) -> None:
        """Set the deadline of the call that begins now; None between two calls."""
        self.deadline, self.overdue_at = deadline, None
        if deadline is not None and self.on_deadline is not None:
            self.on_deadline(deadline)

    def now(self, event_loop_time: float) -> float:
        """The store's clock, as far as it can be known here: what lasts longer than a run is measured by it."""
        return self.at + max(0.0, event_loop_time - self.began)

    def clock(self, event_loop_time: Callable[[], float]) -> Callable[[], float]:
        """The same as a function, for a run that asks often."""
        ahead_s = self.at - self.began
        return lambda: ahead_s + event_loop_time()

    @property
    def fence(self) -> str:
        """The token for the handler's own writes elsewhere: no other run of any task ever has the same."""
        return f"{self.lease.id}-{self.lease.sequence}-{self.incarnation:016x}"


@dataclass(frozen=True, slots=True)
class Work:
    """How to run the tasks of one name."""

    name: str
    queue: str
    run: Callable[[Run], Awaitable[Settlement]]
    timeout_s: float | None = None
    handles_cancel: bool = False
    """It wants to be run although somebody wants it canceled: it has something to tell a remote first."""
    kind: str = "job"
    """Of its tasks, for figures."""
    is_internal: bool = False
    """Its queue is everpoll's own: served whatever queues a user has chosen, and not listed among them."""


@dataclass(slots=True)
class Works:
    """Everything that this process can run, by name. Fronts add to it; the engine reads it."""

    _works: dict[str, Work] = field(default_factory=dict)
    of_strangers: Callable[[Run], Settlement] | None = None
    """What becomes of a task that remembers something and that nobody here knows: it may be in the middle of its life.
    Others fail, which is the clearest."""

    declared: set[str] = field(default_factory=set)
    """Names that this process registers beside those that it runs: schedules. Other workers read them."""

    def add(self, work: Work) -> None:
        """Make a name runnable; the last one wins."""
        self._works[work.name] = work

    def get(self, name: str) -> Work | None:
        """The work of that name."""
        return self._works.get(name)

    def kind_of(self, name: str) -> str:
        """The kind of the tasks of that name; "job" where it is not registered."""
        work = self._works.get(name)
        return "job" if work is None else work.kind

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works.values())

    def __len__(self) -> int:
        return len(self._works)

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._works)

    @property
    def registered(self) -> list[str]:
        """All names that other workers should know of, sorted."""
        return sorted({*self._works, *self.declared})

    @property
    def queues(self) -> list[str]:
        """Every queue that some work belongs to, sorted."""
        return sorted({work.queue for work in self})

    @property
    def internal_queues(self) -> list[str]:
        """The queues of everpoll's own, sorted."""
        return sorted({work.queue for work in self if work.is_internal})
