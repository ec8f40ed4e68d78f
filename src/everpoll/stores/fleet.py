"""The workers of a store: its description at sign-on, the answer to its heartbeat, and its entry in listings."""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from everpoll.policy.liveness import OtherWorker
from everpoll.stores.new_tasks import Limit


class WorkerCard(Struct, frozen=True, gc=False, kw_only=True):
    """The description of a worker at its sign-on."""

    incarnation: int
    """The identity of the worker: 63 random bits, new at each sign-on."""
    label: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    version: str
    names: tuple[str, ...] = ()
    """The tasks that it can run."""
    limits: dict[str, Limit] = {}
    """The limits in this worker's code, by name of the task. They replace the numbers with which a task was enqueued,
    so that a changed limit holds for waiting tasks, too. Their keys are not used."""
    aging_s: float | None = None
    """A task that has been due for longer than this comes first, whatever its priority; None: priorities do not age."""


class Beat(Struct, frozen=True, gc=False, kw_only=True):
    """The store's answer to a heartbeat."""

    is_alive: bool
    """False: this incarnation was declared dead; its leases belong to others by now."""
    rescued: int = 0
    """How many rows this beat took back; only adopted tables do that."""
    canceled: tuple[int, ...] = ()
    """The running tasks of this worker that must be canceled."""
    others: tuple[OtherWorker, ...] = ()
    """The other workers that have not stopped."""
    has_leftovers: bool = False
    """A worker has stopped or was declared dead, and still holds tasks: call `rescue`."""


class Rescued(NamedTuple):
    """The result of a rescue."""

    tasks: int = 0
    """How many tasks it took back or ended."""
    ended: tuple[int, ...] = ()
    """The tasks that it ended: they have lost too many workers, or a caller had canceled them."""


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker as listings show it."""

    incarnation: int
    label: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    version: str
    started_at: datetime
    beat_at: datetime
    beat_age_s: float
    is_alive: bool
    stopped_at: datetime | None
    running: int
    names: tuple[str, ...] | None = None
    """The names of the tasks that it could run when it signed on; None for workers of earlier releases."""
    has_more_running: bool = False
    """True if it may run more tasks than `running`; see `QueueInfo`."""
