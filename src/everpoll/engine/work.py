"""Work: how the engine runs the tasks of a front.

A front registers one `Work` per name. The engine leases, calls `run`, and settles what it returns; it knows nothing
of functions, retries or looks.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from everpoll.engine.tally_entry import Entry
from everpoll.logs.context import Fields
from everpoll.stores.contract import Ended, Lease, Limit, Settlement


class StopReason(StrEnum):
    """Why the engine cancels a handler."""

    CANCELED = "canceled"
    """A cancel was requested."""
    SHUTDOWN = "shutdown"
    """The grace period is over."""
    FENCED = "fenced"
    """This worker could not reach the database for too long: another worker may have the task by now."""
    LOST = "lost"
    """This worker was declared dead: its tasks belong to other workers."""
    OVERDUE = "overdue"
    """Its deadline has passed, and it goes on although it was canceled."""


class RunHost(Protocol):
    """What a run knows of the pool that runs it."""

    worker: str
    """The label of its worker."""

    def check_deadlines_by(self, deadline: float) -> None:
        """Check the deadlines at this time, by the event loop's clock, or earlier."""

    def completed(self, run: "Run", ended: Ended) -> None:
        """End a run without settling it: its end is in the store already."""


class Run(Struct, eq=False):
    """One lease while it is run."""

    lease: Lease
    incarnation: int
    work: "Work | None"
    """How to run it, as it was registered when the lease came; None: the name is not registered in this worker."""
    entry: Entry | None = None
    """The entry of the tally that counts its end; None: its end is not counted."""
    host: "RunHost | None" = None
    """The pool that runs it; it gets each new deadline."""
    at: float = 0.0
    """When it was leased, by the store's clock."""
    began: float = 0.0
    """When it was leased, by the event loop's clock."""
    stop_reason: StopReason | None = None
    deadline: float | None = None
    """When the call that is under way must have ended, by the event loop's clock. The pool and the heartbeat read it;
    `ends_by` sets it."""
    overdue_at: float | None = None
    """When the pool noticed that the deadline has passed."""
    is_abandoned: bool = False
    """The pool has settled the task without waiting for the handler any longer: what the handler returns is ignored."""
    overdue: Callable[[], Settlement] | None = None
    """Returns the settlement if the handler goes on after its deadline; set by the front. None: the rescue takes the
    task back."""
    started: float = -1.0
    """When its handler began, by the event loop's clock; below 0: not yet."""
    is_logged: bool = False
    """True if its end is logged already."""
    error: BaseException | None = None
    """What its handler raised, for the log; set by the front."""
    completing: Ended | None = None
    """The end that the handler has written in its own transaction, committed or not; set by the front."""

    def ends_by(self, deadline: float | None) -> None:
        """Set the deadline of the call that begins now; None between two calls."""
        self.deadline, self.overdue_at = deadline, None
        if deadline is not None and self.host is not None:
            self.host.check_deadlines_by(deadline)

    def now(self, event_loop_time: float) -> float:
        """Return the time by the store's clock, computed from the lease.

        Times that outlast a run are measured by it.
        """
        return self.at + max(0.0, event_loop_time - self.began)

    def clock(self, event_loop_time: Callable[[], float]) -> Callable[[], float]:
        """Return a function that returns the store's time, for a run that needs it often."""
        ahead_s = self.at - self.began
        return lambda: ahead_s + event_loop_time()

    @property
    def kind(self) -> str:
        """The kind of its task; "job" where the name is not registered."""
        return "job" if self.work is None else self.work.kind

    def log_fields(self) -> Fields:
        """Return what a log record about this run says of its task."""
        lease = self.lease
        return {
            "task_id": lease.id,
            "kind": self.kind,
            "name": lease.name,
            "queue": lease.queue,
            "key": lease.key,
            "attempt": lease.attempt,
            "worker": None if self.host is None else self.host.worker,
        }

    @property
    def fence(self) -> str:
        """The token for writes of the handler to other systems: no other run of any task ever has the same one."""
        return f"{self.lease.id}-{self.lease.sequence}-{self.incarnation:016x}"


@dataclass(frozen=True, slots=True)
class Work:
    """How to run the tasks of one name."""

    name: str
    queue: str
    run: Callable[[Run], Awaitable[Settlement]]
    timeout_s: float | None = None
    handles_cancel: bool = False
    """True: run the task although a cancel is requested, because its front must tell a remote first."""
    kind: str = "job"
    """The kind of its tasks, under which figures count them."""
    limit: Limit | None = None
    """How many of its tasks may run and start. The key of each task says which tasks count together."""
    version: int = 1
    """The newest version of its arguments that it understands."""
    is_internal: bool = False
    """True if its queue belongs to everpoll: it is served whatever queues the user chose, and is in no list of
    queues."""


@dataclass(slots=True)
class WorkRegistry:
    """Everything that this process can run, by name. Fronts add to it; the engine reads it."""

    _works: dict[str, Work] = field(default_factory=dict)
    on_unregistered_with_memory: Callable[[Run], Settlement] | None = None
    """Handles tasks with stored memory whose name is not registered in this worker, such as runs that have begun. None:
    they fail."""
    on_unregistered: Callable[[Run], Awaitable[Settlement]] | None = None
    """Handles tasks without memory whose name or version is not registered in this worker; None: they fail."""
    more_queues: Callable[[], Iterable[str]] | None = None
    """Returns further queues to lease from; called before each poll."""
    _queues: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)
    """Further names that this process registers: schedules. Other workers read them."""

    everywhere: dict[str, Work] = field(default_factory=dict)
    """Internal work that every worker does, for tasks in any queue. No list shows it."""

    def add(self, work: Work) -> None:
        """Register how to run a name; a later call replaces an earlier one."""
        is_new = work.name not in self._works
        self._works[work.name] = work
        if not is_new or work.queue not in self._queues:
            self._queues = sorted({one.queue for one in self})

    @property
    def queues(self) -> list[str]:
        """The queues of all registered work, and the further queues that fronts name, sorted.

        The poller reads this before each poll.
        """
        return self._queues if self.more_queues is None else sorted({*self._queues, *self.more_queues()})

    def get(self, name: str) -> Work | None:
        """Return the work of that name, or None."""
        return self._works.get(name) or self.everywhere.get(name)

    @property
    def limits(self) -> dict[str, Limit]:
        """The limits by name, of the works that have one."""
        return {work.name: work.limit for work in self._works.values() if work.limit is not None}

    def kind_of(self, name: str) -> str:
        """Return the kind of the tasks of that name; "job" where it is not registered."""
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
        """All names that other workers should know, sorted.

        A version after the first is published, too, as name@version.
        """
        later = {versioned_name(work.name, work.version) for work in self._works.values() if work.version > 1}
        return sorted({*self._works, *later, *self.declared})

    @property
    def versions(self) -> dict[str, int]:
        """The names of jobs, each with the newest version of its arguments that this worker understands."""
        return {work.name: work.version for work in self._works.values() if work.kind == "job"}

    @property
    def internal_queues(self) -> list[str]:
        """The queues of everpoll's own, sorted."""
        return sorted({work.queue for work in self if work.is_internal})


def versioned_name(name: str, version: int) -> str:
    """Return the name under which a worker publishes that it understands a later version of a job's arguments."""
    return f"{name}@{version}"


def is_known(name: str, version: int, names: Collection[str]) -> bool:
    """Return whether a worker that publishes these names can run a task of this name and version."""
    if version <= 1:
        return name in names
    later = (one.removeprefix(f"{name}@") for one in names if one.startswith(f"{name}@"))
    return any(one.isdecimal() and int(one) >= version for one in later)


def name_and_version(name: str, version: int) -> str:
    """Return the name of a task for messages, with the version of its arguments unless that is the first."""
    return repr(name) if version <= 1 else f"{name!r} with version {version} or newer"
