"""What a store is: the task row, the few operations on it, and what each of them promises.

    enqueue ──▶ queued ──lease──▶ running ──settle(Ended)──▶ done · failed · canceled   (moved to history)
                  ▲                  │
                  ├── settle(Again) ─┤   retry, snooze, hand back
                  └───── rescue ─────┘   its worker was declared dead, or names it as past its deadline

Every implementation promises the same (one conformance suite proves it):

- A lease belongs to one incarnation of one worker and carries a sequence that grows with every lease of the row.
  A settlement that does not match both changes nothing and is reported as lost.
- A task is in exactly one place: live, or in history. It moves in the transaction that settles it.
- Due times are decided by the store's own clock; callers only ever pass delays. No clock decides that a worker is
  dead: another worker does, which has watched its beat number stand still (`policy/liveness.py`).
- Higher priority first, then the earlier due time, then the earlier enqueued. A task that has been due for longer than
  the worker's aging comes before those that have not, whatever its priority.
- A key has at most one live task of each kind; enqueueing it again answers with that one, or does what `Unique` says.
- Of the tasks that share a limit, no more are leased at a time, and no more in any stretch of time, than it allows.
  Running ones are counted from the leases themselves. Keys of limits take turns among equal priorities.
- A task that `cancels_itself` is only asked: a cancel makes it due and tells it, and nothing else ends it.
- A task that others lead to waits until they have ended. Their end tells it, in the transaction that ends them, once.
- Follow-ups of a settlement are enqueued with it or not at all: a settlement counts once, and so do they.
- Events are written together with the change that they report, or not at all. A reader that goes on from a position
  misses none.
- Errors of the connection are raised as `StoreUnavailable`, and then nothing is known about the outcome. Every
  operation may be repeated; an enqueue that must not happen twice carries a key.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from everpoll.drivers.wake import OnWake
from everpoll.policy.liveness import Sighting
from everpoll.stores.figures import Figures
from everpoll.stores.flows import Flows, Takes
from everpoll.stores.operations import Operations, Pause
from everpoll.stores.own_transactions import OwnTransactions

if TYPE_CHECKING:
    from everpoll.stores.examination import Examiner

    # Not for the interpreter: most programs have no services, and load nothing of their records.
    from everpoll.stores.health import HealthRecords

TaskState = Literal["queued", "running", "done", "failed", "canceled"]
EndState = Literal["done", "failed", "canceled"]
LIVE_STATES: tuple[TaskState, ...] = ("queued", "running")
END_STATES: tuple[EndState, ...] = ("done", "failed", "canceled")

LEASE_LIMIT = 500
"""The largest batch that one statement leases: above it the gain is gone, and plans have been seen to flip."""
TRAIL_LIMIT = 100
"""How many decisions a task remembers; the oldest go first."""
RESCUE_LIMIT = 3
"""A task whose worker died this many times is poison: it ends as failed, with that reason."""
DEADLINE_GRACE_S = 5.0
"""A worker ends its own handlers at their deadline. A handler that still runs this much later is overdue: the worker
has its task taken back."""


_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string")


def encode(value: Any) -> str:
    """JSON, the only format that is stored; what JSON does not know becomes its text."""
    return _json.encode(value).decode()


class NewEvent(Struct, frozen=True, gc=False):
    """Something that happened to a task: a JSON object, under a number of the task's own; a repeat is ignored."""

    seq: int
    """From 0 on. With a settlement also `operations.UNNUMBERED`: the store gives it a negative number."""
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
        """The same key under the numbers of another limit."""
        return self if rule is None else Limit(self.key, rule.running, rule.starts, rule.per_s)


OnConflict = Literal["existing", "reject", "replace"]
ON_CONFLICT: tuple[OnConflict, ...] = ("existing", "reject", "replace")


class Unique(Struct, frozen=True, gc=False):
    """What an enqueue does where its key is taken, beyond answering with the live task that has it."""

    on_conflict: OnConflict = "existing"
    """existing, reject: the task that has the key is the answer, unchanged. replace: a queued one is as if it were
    enqueued now, under its own id; one that runs, or takes what other tasks bring, goes on without the key, which the
    new task gets."""
    for_s: float | None = None
    """An ended task with the key answers as well, if it was enqueued less than so many seconds ago and is indexed."""
    together: bool = False
    """With reject: if the key is taken, no task of the call is enqueued."""


class NewTask(Struct, frozen=True, gc=False, kw_only=True):
    """What is to be enqueued. `args` and `memory` are JSON texts, which the store does not read."""

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
    """None: it counts for no limit, and pays for none."""
    unique: Unique | None = None
    """With a key. None: the live task that has the key answers."""


class Enqueued(Struct, frozen=True, gc=False):
    """The id of the new task, or of the task that already has the key."""

    id: int
    """0: not enqueued, because another task of the call was rejected (`Unique.together`)."""
    is_new: bool = True


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
"""Of the shortest waiting time. Of a large batch, telling each costs as much as a fifth of leasing it."""


class Leased(Struct, frozen=True, gc=False):
    """What one look brought."""

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
    """None keeps its place in the line: what is handed back was not late by its own fault."""
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


class WorkerCard(Struct, frozen=True, gc=False, kw_only=True):
    """What a worker says about itself when it signs on."""

    incarnation: int
    """Random per sign-on, 63 bits. Names are labels; this is the identity."""
    label: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    version: str
    names: tuple[str, ...] = ()
    """The tasks that it can run."""
    limits: dict[str, Limit] = {}
    """By name of the task: what this worker's own code says. It counts for its leases in place of what a task brought
    along, so that a changed limit holds for tasks that wait already. Their keys mean nothing."""
    aging_s: float | None = None
    """A task that has been due for longer than this comes first, whatever its priority; None: priorities do not age."""


class Beat(Struct, frozen=True, gc=False, kw_only=True):
    """What a heartbeat learns, beside having been heard."""

    is_alive: bool
    """False: this incarnation was declared dead; its leases belong to others by now."""
    rescued: int = 0
    """Rows that this beat itself took back; only adopted tables do that."""
    canceled: tuple[int, ...] = ()
    """Of the tasks asked about, those that are to be canceled."""
    others: tuple[Sighting, ...] = ()
    """The other workers that have not stopped."""
    has_leftovers: bool = False
    """A worker has stopped or was declared dead, and still holds tasks: call `rescue`."""


class Rescued(NamedTuple):
    """What a rescue did."""

    tasks: int = 0
    """How many tasks it took back or ended."""
    ended: tuple[int, ...] = ()
    """The tasks that it ended: they have lost too many workers, or were to be canceled."""


class TaskInfo(Struct, frozen=True, kw_only=True, gc=False):
    """A task as people see it; JSON columns are decoded."""

    id: int
    kind: str
    name: str
    queue: str
    key: str | None
    state: TaskState
    priority: int
    attempt: int
    rescues: int
    created_at: datetime
    due_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline_at: datetime | None = None
    worker: str | None = None
    """The label of the worker that holds it, or held it last."""
    incarnation: int | None = None
    cancel_requested: bool = False
    args: Any = None
    memory: Any = None
    progress: Any = None
    result: Any = None
    limit: Limit | None = None
    """What it counts for, as it was enqueued."""
    then_id: int | None = None
    """The task that waits, or waited, for the end of this one."""
    takes: Takes | None = None
    """What it takes from those that it waits for, or waited for; None: it waits for no task."""
    blockers: int = 0
    """How many tasks it still waits for; above 0, no worker leases it."""
    trail: tuple[dict[str, Any], ...] = ()
    """Decisions in order, each with `at`, `by`, `what` and its evidence; failed attempts carry the error."""

    @property
    def cancel_reason(self) -> str:
        """Why it was canceled: the reason of the cancel request, else the reason that its own function gave."""
        asked = [entry["why"] for entry in self.trail if entry.get("what") == "cancel" and entry.get("why")]
        said = [entry["why"] for entry in self.trail if entry.get("what") == "canceled" and entry.get("why")]
        return str((asked or said or ["no reason was given"])[-1])

    @property
    def errors(self) -> tuple[dict[str, Any], ...]:
        """One per failed attempt, with traceback."""
        return tuple(entry for entry in self.trail if "error" in entry)


class LiveTask(Struct, frozen=True, gc=False):
    """A live task with its JSON as it is written: a caller that reads thousands decodes it into structs of its own."""

    id: int
    key: str | None
    cancel_requested: bool
    args: str
    memory: str | None


class Event(Struct, frozen=True, kw_only=True):
    """What happened, as it is read."""

    task_id: int
    """0: it is about no task."""
    kind: str
    """Of the task, as its name and key; without a task: "queue", "loop", "bulk", "service" …"""
    name: str
    key: str | None
    seq: int
    at: datetime
    body: Any
    position: str
    """Its place in the feed; opaque. The feed goes on behind it."""


class EventPage(Struct, frozen=True):
    """A piece of the feed; it goes on behind `after`."""

    events: tuple[Event, ...]
    after: str
    is_gap: bool = False
    """Some events behind the position that was asked for are gone: they were older than history is kept."""


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker as people see it."""

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
    """The tasks that it could run when it signed on; None: it did not say, as workers of earlier releases."""


class QueueInfo(Struct, frozen=True, kw_only=True):
    """How much waits in a queue; counts are exact up to `COUNT_LIMIT` and never cost a scan of everything."""

    queue: str
    ready: int
    waiting: int
    running: int
    oldest_due_at: datetime | None = None
    """Since when the ready task that has waited longest has been due; None: none is ready. Of more than 100 priorities
    in one queue the lowest are not looked at."""
    paused: Pause | None = None
    """None: workers lease from it. A paused queue is listed also without tasks."""
    limited: int = 0
    """Due tasks that count for a limit, and wait until it lets them start; they are not among the ready ones."""


class LimitInfo(Struct, frozen=True, kw_only=True):
    """What happens at one key of a limit; counts stop at `COUNT_LIMIT`."""

    key: str
    waiting: int
    """Due, and not started."""
    running: int
    oldest_started_at: datetime | None = None
    """Of those that run, when the first one started."""
    starts: tuple[tuple[datetime, int], ...] = ()
    """How many started when, oldest first, for as long as a rate counts them; starts close to one another are one."""


COUNT_LIMIT = 10_000
SEARCH_LIMIT = 10_000
"""Tasks of each table that one page looks at where no index has the filter: 10 to 30 ms, however many there are."""
TEXT_SEARCH_LIMIT = 5_000
"""The same for a text in their arguments, which may be long."""
ERROR_SEARCH_LIMIT = 2_500
"""The same among the tasks of one class of errors: they are far apart, so that each is a page of the database."""


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks to list; None means any."""

    state: TaskState | None = None
    queue: str | None = None
    name: str | None = None
    kind: str | None = None
    indexed: bool = False
    """Only indexed tasks: with a kind, an index finds them."""
    error: str | None = None
    """The class of its last error since it was enqueued or retried by hand."""
    q: str | None = None
    """A text in its arguments, or `member:value`; see `stores/task_search.py`."""
    since: datetime | None = None
    """Enqueued then or later …"""
    until: datetime | None = None
    """… and before that."""
    is_retrying: bool = False
    """Only tasks that failed and wait for their next attempt."""


class TaskPage(Struct, frozen=True):
    """Newest first; `after` continues the list, None at its end."""

    tasks: tuple[TaskInfo, ...]
    after: int | None = None
    searched_back_to: datetime | None = None
    """Set where the page is short because no more than SEARCH_LIMIT tasks were looked at: the oldest of them was
    enqueued then. The list goes on behind `after` all the same."""


class Pulse(Protocol):
    """The heartbeat's own way to the store: blocking calls, from its own thread, on its own connection."""

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """Count one more beat of this worker; tell which running tasks are to be canceled, and what others beat."""

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """Take back what dead and stopped workers hold, and overdue tasks of this worker.

        `dead`: incarnations to declare dead, each with the beat number that stood still. A worker that has beaten
        since is left alone, whenever this call arrives. `overdue`: ids and sequences that this worker holds.
        """

    def close(self) -> None:
        """Let go of the connection."""


class Source(Protocol):
    """Where the engine gets its tasks: a store, or an adopted table.

    All raise `StoreUnavailable` when the database cannot be reached.
    """

    has_push: bool
    """Whether an enqueue elsewhere really wakes `on_wake` here; found out by a self-test in `listen`."""
    beats_in_loop: bool
    """True under a virtual clock: the heartbeat then belongs into the event loop, whose time that is."""

    @property
    def hand_over(self) -> Callable[[], None] | None:
        """For a store that works in a thread of its own: called in the middle of many short runs, it gives that thread
        the interpreter for a moment. None: nothing to call."""

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """Enter a worker; it may lease from now on."""

    async def sign_off(self, incarnation: int) -> None:
        """The worker has settled or handed back everything."""

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """At most `most` due tasks (never more than LEASE_LIMIT), of each queue at most its room, best first.

        Raises `LeaseLost` for an incarnation that was declared dead: it must sign on anew.
        """

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """Settle a mixed batch in one transaction; the ids that were lost: not ours any more, unchanged."""

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """Of those that `settle` called lost, the ids that an earlier try, whose answer got lost, has settled."""

    async def note_loss(self, task_id: int, note: str) -> None:
        """Record, beside the task and not in it, that a worker's result was dropped."""

    async def prune(self, older_than_s: float) -> int:
        """Drop history, and events, older than this; how many partitions or rows of history went."""

    async def listen(self, on_wake: OnWake) -> None:
        """Call `on_wake`, in this event loop's thread, whenever something may have become due or is to be canceled.

        A connection that breaks is re-established, and then `on_wake` is called at once.
        """

    async def unlisten(self, on_wake: OnWake) -> None:
        """Stop calling it."""

    def pulse(self) -> Pulse:
        """A heartbeat connection of its own, for another thread."""

    async def back_off(self, delay_s: float) -> None:
        """Wait that long after `StoreUnavailable`; less where another part of this process reaches the store first."""


class Store(Source, Operations, Figures, OwnTransactions, Flows, Protocol):
    """The tables of everpoll's own."""

    @property
    def health(self) -> "HealthRecords":
        """What is recorded about services."""

    async def open(self, *, migrate: bool = True) -> None:
        """Connect; bring the schema up to date, or raise `SchemaOutdated` where `migrate` is False. Repeatable."""

    async def close(self) -> None:
        """Let go of every connection. Repeatable."""

    async def migrate(self) -> list[str]:
        """Apply the missing migrations, and return their names. Several processes may call it at the same time."""

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """All or none, in order; wakes workers. Of two equal keys in one call, the first wins.

        `once` without a key, or for a task that is not indexed, is `BadInput`; so is `unique` without a key.
        """

    async def progress(self, incarnation: int, lease: Lease, progress: str) -> bool:
        """Store a JSON text about a running task; False: lost."""

    async def losses(self, task_id: int) -> list[dict[str, Any]]:
        """What `note_loss` recorded about a task."""

    async def info(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """Those that exist, live or in history, read in one snapshot."""

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """Those that have ended: the cheap look that all waiters of a process share."""

    async def find(self, kind: str, key: str) -> TaskInfo | None:
        """The live task of that kind with that key; without one, of indexed tasks, the last that ended."""

    async def last_results(self, kind: str, name: str, limit: int = 200) -> list[Any]:
        """The results, where there are any, of the indexed tasks of that name that ended last, newest first."""

    async def task_events(self, task_id: int, after: int = 0, limit: int = 1000) -> list[Event]:
        """What happened to one task, behind the number `after`, by number."""

    async def events_of(self, after: Mapping[int, int], limit: int = 1000) -> list[Event]:
        """What happened to several tasks: of each at most `limit` behind its number, by task and number."""

    async def events(self, after: str | None, limit: int = 1000) -> EventPage:
        """The feed of all tasks, behind a position; None answers nothing, and the position of now.

        Nothing ever appears in front of a position that was returned, whatever order transactions commit in: what
        commits after it, or was not visible with it, is behind it. `BadInput` for a text that is not a
        position of this store.
        """

    async def tasks(self, wanted: TaskFilter, limit: int = 50, after: int | None = None) -> TaskPage:
        """A page, newest first."""

    async def live(self, kind: str, limit: int = 1_000, after: int | None = None) -> list[LiveTask]:
        """The live indexed tasks of a kind, newest first, those with an id below `after`."""

    async def workers(self) -> list[WorkerInfo]:
        """Those alive, and those that ended within the last day."""

    async def queues(self) -> list[QueueInfo]:
        """What waits where."""

    def examiner(self) -> "Examiner":
        """Return what gathers facts for a doctor: on its own connections, also while this store is closed."""

    async def limit(self, key: str) -> LimitInfo:
        """What happens at a key; a key that no task has is one at which nothing happens."""
