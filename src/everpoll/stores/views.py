"""Views: tasks, events, queues and limits, as callers read them."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from everpoll.stores.flows import Takes
from everpoll.stores.new_tasks import Limit
from everpoll.stores.operations import Pause
from everpoll.stores.task_states import TaskState

TRAIL_LIMIT = 100
"""How many decisions a trail keeps; beyond that, the oldest are dropped."""


class TaskInfo(Struct, frozen=True, kw_only=True, gc=False):
    """A task, for callers and operators; JSON columns are decoded."""

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
    """The version of the arguments."""
    memory: Any = None
    progress: Any = None
    result: Any = None
    limit: Limit | None = None
    """The limit of the task, as it was enqueued."""
    then_id: int | None = None
    """The task that waits, or waited, for the end of this one."""
    takes: Takes | None = None
    """What it takes from the tasks that it waits for, or waited for; None if there are none."""
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
        """The notes of failed attempts, with their tracebacks."""
        return tuple(entry for entry in self.trail if "error" in entry)


class LiveTask(Struct, frozen=True, gc=False):
    """A live task with its JSON undecoded: callers that read thousands decode it into their own structs."""

    id: int
    key: str | None
    cancel_requested: bool
    args: str
    memory: str | None


class Event(Struct, frozen=True, kw_only=True):
    """An event, as it is read."""

    task_id: int
    """The id of its task; 0 if it is about no task."""
    kind: str
    """The kind of its task; if it is about no task: "queue", "loop", "bulk", "service" …"""
    name: str
    key: str | None
    seq: int
    at: datetime
    body: Any
    position: str
    """Its position in the feed, from which a reader can continue; opaque."""


class EventPage(Struct, frozen=True):
    """A page of the feed; `after` continues it."""

    events: tuple[Event, ...]
    after: str
    is_gap: bool = False
    """True if events after the requested position were dropped, because they were older than history is kept."""


class QueueInfo(Struct, frozen=True, kw_only=True):
    """The tasks of a queue; counts are exact up to `COUNT_LIMIT`, and never need a scan of all tasks."""

    queue: str
    ready: int
    waiting: int
    running: int
    oldest_due_at: datetime | None = None
    """The due time of the ready task that has waited longest; None if none is ready. Of thousands of priorities, the
    lowest are not read. Tasks that wait for their limit are not ready."""
    paused: Pause | None = None
    """The pause, or None. A paused queue is listed even if it has no tasks."""
    limited: int = 0
    """Due tasks that wait until their limit lets them start; they are not among the ready ones."""
    blocked: int = 0
    """Tasks of chains and groups that wait for other tasks to end."""
    has_more_running: bool = False
    """True if more tasks may run than were counted: some stores stop counting at a bound."""


class LimitInfo(Struct, frozen=True, kw_only=True):
    """The tasks of one key of a limit; counts stop at `COUNT_LIMIT`."""

    key: str
    waiting: int
    """How many tasks are due and have not started."""
    running: int
    oldest_started_at: datetime | None = None
    """When the first of the running tasks started."""
    starts: tuple[tuple[datetime, int], ...] = ()
    """Instants with how many tasks started then, oldest first, as long as a rate counts them; close starts are
    merged."""


COUNT_LIMIT = 10_000
SEARCH_LIMIT = 10_000
"""How many tasks of each table one page reads if no index serves the filter: 10 to 30 ms, for any number of tasks."""
TEXT_SEARCH_LIMIT = 5_000
"""How many tasks a search by text in the arguments reads, which may be long."""
ERROR_SEARCH_LIMIT = 2_500
"""How many tasks a search by class of errors reads: they are far apart, so each is on another page of the disk."""


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks to list; None means any."""

    state: TaskState | None = None
    queue: str | None = None
    name: str | None = None
    kind: str | None = None
    indexed: bool = False
    """Only indexed tasks: with a kind, an index finds them."""
    key_start: str | None = None
    """The beginning of their keys."""
    error: str | None = None
    """The class of its last error since it was enqueued or retried by hand."""
    q: str | None = None
    """A text in its arguments, or `member:value`; see `stores/task_search.py`."""
    since: datetime | None = None
    """Only tasks that were enqueued at this instant or later."""
    until: datetime | None = None
    """Only tasks that were enqueued before this instant."""
    ended_since: datetime | None = None
    """Only tasks that ended at this instant or later."""
    ended_until: datetime | None = None
    """Only tasks that ended before this instant."""
    is_retrying: bool = False
    """Only tasks that failed and wait for their next attempt."""


class TaskPage(Struct, frozen=True):
    """Newest first; `after` continues the list, None at its end."""

    tasks: tuple[TaskInfo, ...]
    after: int | None = None
    searched_back_to: datetime | None = None
    """If the page is short because only SEARCH_LIMIT tasks were read: when the oldest of them was enqueued. The list
    continues after `after` in any case."""
