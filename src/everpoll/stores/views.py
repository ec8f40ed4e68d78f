"""Tasks, events, queues and limits as people and fronts read them."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from everpoll.stores.flows import Takes
from everpoll.stores.new_tasks import Limit
from everpoll.stores.operations import Pause
from everpoll.stores.task_states import TaskState

TRAIL_LIMIT = 100
"""How many decisions a task remembers; the oldest go first."""


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
    version: int = 1
    """Of the arguments: which form they have."""
    memory: Any = None
    progress: Any = None
    result: Any = None
    limit: Limit | None = None
    """The limit that it counts for, as it was enqueued."""
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
    """Its place in the feed; opaque. The feed goes on after it."""


class EventPage(Struct, frozen=True):
    """A piece of the feed; it goes on after `after`."""

    events: tuple[Event, ...]
    after: str
    is_gap: bool = False
    """Some events after the position that was asked for are gone: they were older than history is kept."""


class QueueInfo(Struct, frozen=True, kw_only=True):
    """How much waits in a queue; counts are exact up to `COUNT_LIMIT` and never cost a scan of everything."""

    queue: str
    ready: int
    waiting: int
    running: int
    oldest_due_at: datetime | None = None
    """Since when the ready task that has waited longest has been due; None: none is ready. Of thousands of priorities
    the lowest are not looked at. Those that wait for their limit are not ready: they are to wait."""
    paused: Pause | None = None
    """None: workers lease from it. A paused queue is listed also without tasks."""
    limited: int = 0
    """Due tasks that count for a limit, and wait until it lets them start; they are not among the ready ones."""
    blocked: int = 0
    """Tasks of chains and groups that wait for others to end; no worker leases them before."""
    has_more_running: bool = False
    """More tasks may run than were counted: a store that counts them by reading lines of tasks has a bound on that."""


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
    key_start: str | None = None
    """What their keys begin with."""
    error: str | None = None
    """The class of its last error since it was enqueued or retried by hand."""
    q: str | None = None
    """A text in its arguments, or `member:value`; see `stores/task_search.py`."""
    since: datetime | None = None
    """Enqueued then or later …"""
    until: datetime | None = None
    """… and before that."""
    ended_since: datetime | None = None
    """Ended then or later: only ended tasks …"""
    ended_until: datetime | None = None
    """… and before that."""
    is_retrying: bool = False
    """Only tasks that failed and wait for their next attempt."""


class TaskPage(Struct, frozen=True):
    """Newest first; `after` continues the list, None at its end."""

    tasks: tuple[TaskInfo, ...]
    after: int | None = None
    searched_back_to: datetime | None = None
    """Set where the page is short because no more than SEARCH_LIMIT tasks were looked at: the oldest of them was
    enqueued then. The list goes on after `after` all the same."""
