"""What a store is: the task row, the few operations on it, and what each of them promises.

    enqueue ──▶ queued ──lease──▶ running ──settle(Ended)──▶ done · failed · canceled   (moved to history)
                  ▲                  │
                  ├── settle(Again) ─┤   retry, snooze, hand back
                  └───── rescue ─────┘   its worker was declared dead, or names it as past its deadline

Every implementation promises the same (one conformance suite proves it):

- A lease belongs to one incarnation of one worker and carries a sequence that grows with every lease of the row.
  A settlement that does not match both changes nothing and is reported as lost.
- A task is in exactly one place: live, or in history. It moves in the transaction that settles it.
- The store's own clock decides about due times; callers pass delays only. No clock decides that a worker is dead:
  another worker does, which has seen that its beat number does not change (`policy/liveness.py`).
- A higher priority comes first, then an earlier due time, then an earlier enqueue. Tasks that have been due for longer
  than the worker's aging come before all others, the oldest first. If all due tasks have the same priority, aging has
  no effect.
- A key has at most one live task of each kind; enqueueing it again returns that task, or does what `Unique` says.
- Of the tasks that share a limit, no more are leased at a time, and no more in any period, than the limit allows.
  Running tasks are counted from the leases. Keys of limits take turns among equal priorities.
- A cancel does not end a task that `cancels_itself`: it makes the task due, and its next lease carries the request.
- A task that waits for other tasks is leased once they have ended. The transaction that ends one of them reports it
  once.
- Follow-ups of a settlement are enqueued with it or not at all, so each of them is enqueued once.
- Events are written together with the change that they report, or not at all. A reader that goes on from a position
  misses none.
- Errors of the connection are raised as `StoreUnavailable`, and then nothing is known about the outcome. Every
  operation may be repeated; an enqueue that must not happen twice carries a key.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from everpoll.drivers.wake import OnWake
from everpoll.stores.figures import Figure, Figures
from everpoll.stores.fleet import Beat, Rescued, WorkerCard, WorkerInfo
from everpoll.stores.flows import Flows
from everpoll.stores.leases import (
    ALIKE_SHARE,
    DEADLINE_GRACE_S,
    LEASE_LIMIT,
    RESCUE_LIMIT,
    Again,
    Ended,
    Lease,
    Leased,
    Settlement,
)
from everpoll.stores.new_tasks import ON_CONFLICT, Enqueued, Limit, NewEvent, NewTask, OnConflict, Unique
from everpoll.stores.operations import Operations
from everpoll.stores.own_transactions import OwnTransactions
from everpoll.stores.stored_json import encode
from everpoll.stores.task_states import END_STATES, LIVE_STATES, EndState, TaskState
from everpoll.stores.views import (
    COUNT_LIMIT,
    ERROR_SEARCH_LIMIT,
    SEARCH_LIMIT,
    TEXT_SEARCH_LIMIT,
    TRAIL_LIMIT,
    Event,
    EventPage,
    LimitInfo,
    LiveTask,
    QueueInfo,
    TaskFilter,
    TaskInfo,
    TaskPage,
)

if TYPE_CHECKING:
    from everpoll.stores.examination import Examiner

    # Not for the interpreter: most programs have no services, and load nothing of their records.
    from everpoll.stores.health import HealthRecords

__all__ = [
    "ALIKE_SHARE",
    "COUNT_LIMIT",
    "DEADLINE_GRACE_S",
    "END_STATES",
    "ERROR_SEARCH_LIMIT",
    "LEASE_LIMIT",
    "LIVE_STATES",
    "ON_CONFLICT",
    "RESCUE_LIMIT",
    "SEARCH_LIMIT",
    "TEXT_SEARCH_LIMIT",
    "TRAIL_LIMIT",
    "Again",
    "Beat",
    "EndState",
    "Ended",
    "Enqueued",
    "Event",
    "EventPage",
    "HeartbeatConnection",
    "Lease",
    "Leased",
    "Limit",
    "LimitInfo",
    "LiveTask",
    "NewEvent",
    "NewTask",
    "OnConflict",
    "QueueInfo",
    "Rescued",
    "Settlement",
    "Source",
    "Store",
    "TaskFilter",
    "TaskInfo",
    "TaskPage",
    "TaskState",
    "Unique",
    "WorkerCard",
    "WorkerInfo",
    "encode",
]


class HeartbeatConnection(Protocol):
    """The heartbeat's connection to the store: blocking calls, from the heartbeat's own thread."""

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """Count a beat of this worker; return which running tasks must be canceled, and the others' beat numbers."""
        ...

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """Take back the tasks of dead and stopped workers, and overdue tasks of this worker.

        `dead`: incarnations to declare dead, each with the beat number that has not changed. If such a worker has
        sent a heartbeat since, it is not declared dead. `overdue`: ids and sequences of tasks of this worker.
        """
        ...

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        """Write figures of this worker, and the loops of its process as JSON. An adopted table stores neither."""

    def close(self) -> None:
        """Close the connection."""


class Source(Protocol):
    """The source of the engine's tasks: a store, or an adopted table.

    All raise `StoreUnavailable` when the database cannot be reached.
    """

    beats_in_loop: bool
    """True under a virtual clock: the heartbeat then runs in the event loop, which has that clock."""

    @property
    def has_push(self) -> bool:
        """True if an enqueue in another process wakes `on_wake` here, by the self-test of `listen`."""
        ...

    @property
    def yield_to_thread(self) -> Callable[[], None] | None:
        """A function for stores with a thread of their own: the pool calls it among many short runs, so that the thread
        can go on. None if the store has no such thread."""
        ...

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """Sign a worker on; it may lease from now on."""

    async def sign_off(self, incarnation: int) -> None:
        """Sign a worker off, which has settled or handed back all its tasks."""

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """Lease up to `most` due tasks (never more than LEASE_LIMIT), and of each queue up to its room, best first.

        Raises `LeaseLost` for an incarnation that was declared dead: it must sign on anew.
        """
        ...

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """Settle a mixed batch in one transaction; return the ids of lost leases, whose tasks stay unchanged."""
        ...

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """Return which of the ids that `settle` called lost were settled by an earlier try whose answer got lost."""
        ...

    async def note_loss(self, task_id: int, note: str) -> None:
        """Record that a worker's result was dropped, in a table of its own, not in the task."""

    async def prune(self, older_than_s: float) -> int:
        """Drop history and events older than this; return how many partitions or rows of history were dropped."""
        ...

    async def listen(self, on_wake: OnWake) -> None:
        """Call `on_wake`, in this event loop's thread, whenever a task may have become due or must be canceled.

        A connection that breaks is re-established, and then `on_wake` is called at once.
        """

    async def unlisten(self, on_wake: OnWake) -> None:
        """Stop calling it."""

    def heartbeat_connection(self) -> HeartbeatConnection:
        """Return a connection for the heartbeat, to be used from another thread."""
        ...

    async def back_off(self, delay_s: float) -> None:
        """Wait that long after `StoreUnavailable`, or until another part of this process reaches the store."""


class Store(Source, Operations, Figures, OwnTransactions, Flows, Protocol):
    """A source with everpoll's own tables."""

    @property
    def health(self) -> "HealthRecords":
        """The records of services."""
        ...

    async def open(self, *, migrate: bool = True) -> None:
        """Connect; apply missing migrations, or raise `SchemaOutdated` if `migrate` is False. Repeatable."""

    async def close(self) -> None:
        """Close every connection. Repeatable."""

    async def migrate(self) -> list[str]:
        """Apply the missing migrations, and return their names. Several processes may call it at the same time."""
        ...

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Enqueue all or none, in order; wake workers. Of two equal keys in one call, the first wins.

        Raises `BadInput` for `once` without a key or for a task that is not indexed, and for `unique` without a key. If
        an open transaction has locked the key of a task that `waits_briefly`, this raises `LockHeld` after a moment,
        and nothing is enqueued: call it again.
        """
        ...

    async def progress(self, incarnation: int, lease: Lease, progress: str) -> bool:
        """Store a JSON text about a running task; return False if its lease was lost."""
        ...

    async def losses(self, task_id: int) -> list[dict[str, Any]]:
        """Return what `note_loss` recorded about a task."""
        ...

    async def info(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """Return the tasks that exist, live or in history, read in one snapshot."""
        ...

    async def sizes(self, task_ids: Sequence[int]) -> dict[int, int]:
        """Return how many bytes of payload `info` would read for each of the tasks that exist."""
        ...

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
        """Return those of the tasks that have ended: a fast query that all waiters of a process share.

        A done task has its result, any other its trail; none has arguments, memory and progress. None stands for a task
        whose result did not fit into this answer: read it again.
        """
        ...

    async def find(self, kind: str, key: str) -> TaskInfo | None:
        """Return the live task of that kind with that key; if there is none, the indexed task that ended last."""
        ...

    async def last_results(self, kind: str, name: str, limit: int = 200) -> list[Any]:
        """Return the results of the indexed tasks of that name that ended last, newest first; null is left out."""
        ...

    async def task_events(self, task_id: int, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return the events of one task with a number above `after`, by number."""
        ...

    async def events_of(self, after: Mapping[int, int], limit: int = 1000) -> list[Event]:
        """Return the events of several tasks: of each at most `limit` above its number, by task and number."""
        ...

    async def events(self, after: str | None, limit: int = 1000) -> EventPage:
        """Return the feed of all tasks after a position; for None no events, and the current position.

        An event that becomes visible later has a later position than every position returned so far, in whatever order
        transactions commit. Raises `BadInput` for a text that is not a position of this store.
        """
        ...

    async def tasks(self, wanted: TaskFilter, limit: int = 50, after: int | None = None) -> TaskPage:
        """Return a page, newest first; fewer than `limit` tasks if their payloads are too large together."""
        ...

    async def live(self, kind: str, limit: int = 1_000, after: int | None = None) -> list[LiveTask]:
        """Return the live indexed tasks of a kind, newest first, those with an id below `after`."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are alive, and those that ended within the last day."""
        ...

    async def queues(self) -> list[QueueInfo]:
        """Return how much waits and runs in each queue."""
        ...

    def examiner(self) -> "Examiner":
        """Return the examiner of this store: it has its own connections, and works while the store is closed."""
        ...

    async def limit(self, key: str) -> LimitInfo:
        """Return the state of the limit with this key; all its figures are 0 if no task has it."""
        ...
