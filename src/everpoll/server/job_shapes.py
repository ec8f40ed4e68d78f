"""Jobs as the HTTP API shows them: no text has a secret in it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from everpoll.http.stored_secrets import each_without_secrets, without_secrets
from everpoll.jobs import Jobs
from everpoll.jobs.groups import GroupInfo
from everpoll.server.answers import exact_text
from everpoll.server.shapes import Page, instant_example
from everpoll.stores.contract import Event, TaskInfo, TaskState
from everpoll.stores.contract import Limit as JobLimit
from everpoll.stores.flows import Takes


class JobError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failed attempt."""

    error: str
    type: str | None = None
    attempt: int | None = None
    at: float | None = None
    by: str | None = None
    why: str | None = None
    traceback: str | None = None


class JobItem(Struct, frozen=True, kw_only=True, gc=False):
    """A job in a list."""

    id: int
    name: str
    queue: str
    key: str | None
    state: TaskState
    priority: int
    attempt: int
    attempts: int | None
    """How many attempts it may make in all; null: this server has no app that registers the job."""
    created_at: datetime
    due_at: datetime
    scheduled_for: datetime | None
    """The scheduled time for which a schedule enqueued it; null: no schedule did."""
    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    cancel_requested: bool
    args: list[Any]
    kwargs: dict[str, Any]
    progress: Any
    error: JobError | None
    """The error of the last failed attempt, without traceback."""
    limit: JobLimit | None
    """The key that it counts for, how many of the key may run at a time, and how many may start in a stretch; null: no
    limit."""
    then_id: int | None
    """The job that waits, or waited, for the end of this one; null if there is none."""
    takes: Takes | None
    """What it takes from the jobs that it waits for, or waited for: the result of one (a chain), or the end of all (a
    group); null: it waits for none."""
    blockers: int
    """How many jobs it still waits for; no worker starts it before this is 0."""


class LeadingJob(Struct, frozen=True, kw_only=True):
    """A job that another one waits for."""

    id: int
    name: str
    state: TaskState


class JobMembers(Struct, frozen=True, kw_only=True):
    """How many members of the group that a job waits for are in which state.

    Members whose history was dropped count in `total` only.
    """

    total: int
    ended: int
    queued: int
    running: int
    done: int
    failed: int
    canceled: int


class JobAction(Struct, frozen=True, kw_only=True):
    """An action of an operator: `what`, `by`, `why`."""

    at: datetime
    body: Any


class JobDetail(JobItem, frozen=True, kw_only=True):
    """Everything about a job."""

    version: int
    """The version of its arguments; new jobs get the version that is registered."""
    result: Any
    exact: dict[str, str]
    """The JSON of those of `args`, `kwargs`, `result` and `progress` that have an integer beyond 2^53: a string in the
    field itself, a number here."""
    errors: list[JobError]
    """One for each failed attempt, with traceback."""
    trail: list[dict[str, Any]]
    """The decisions about it, in order."""
    actions: list[JobAction]
    """The actions of operators, oldest first."""
    rescues: int
    deadline_at: datetime | None
    waits_for: list[LeadingJob]
    """Up to ten jobs that it waits for, or waited for; those that have not ended first."""
    members: JobMembers | None
    """The counts of its group, if it waits, or waited, for the end of a group."""


class JobPage(Page, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs, newest first."""

    items: list[JobItem]
    after: str | None
    searched_back_to: datetime | None = None
    """Set if a bounded search made the page short: when the oldest job that was read was enqueued."""


Shown = TypeVar("Shown", bound=JobItem)


def job_items(tasks: Sequence[TaskInfo], jobs: Jobs) -> list[JobItem]:
    """Return jobs for lists; `jobs` are those that are registered here."""
    texts = each_without_secrets([_texts(task) for task in tasks])
    return [_item(JobItem, task, jobs, safe) for task, safe in zip(tasks, texts, strict=True)]


def job_detail(
    task: TaskInfo,
    jobs: Jobs,
    actions: Sequence[Event],
    waits_for: Sequence[TaskInfo] = (),
    group: GroupInfo | None = None,
) -> JobDetail:
    """Return everything about a job, with secrets masked."""
    texts, result = without_secrets(_texts(task)), without_secrets(task.result)
    args, kwargs, progress, _ = texts
    fields = {"args": args, "kwargs": kwargs, "result": result, "progress": progress}
    return _item(
        JobDetail,
        task,
        jobs,
        texts,
        version=task.version,
        result=result,
        exact={name: text for name, value in fields.items() if (text := exact_text(value)) is not None},
        errors=[_error(entry) for entry in task.errors],
        trail=without_secrets(list(task.trail)),
        actions=[JobAction(at=one.at, body=without_secrets(one.body)) for one in actions],
        rescues=task.rescues,
        deadline_at=task.deadline_at,
        waits_for=[LeadingJob(id=one.id, name=one.name, state=one.state) for one in waits_for],
        members=None if group is None else _members(group),
    )


def _members(group: GroupInfo) -> JobMembers:
    return JobMembers(
        total=group.total,
        ended=group.ended,
        queued=group.queued,
        running=group.running,
        done=group.done,
        failed=group.failed,
        canceled=group.canceled,
    )


def _texts(task: TaskInfo) -> list[Any]:
    """Return the fields that may contain a secret: arguments, progress, and the last error."""
    args, kwargs = _call(task.args)
    last = next((entry for entry in reversed(task.trail) if "error" in entry), None) if task.trail else None
    # Drop the traceback first, because it is by far the longest text of a list.
    error = None if last is None else {name: last[name] for name in last if name != "traceback"}
    return [args, kwargs, task.progress, error]


def _item(shape: type[Shown], task: TaskInfo, jobs: Jobs, texts: list[Any], **more: Any) -> Shown:
    """Return a job for lists or, with `more` fields, in detail; `texts` are its texts without secrets."""
    # No loop over the fields: a page has hundreds of jobs.
    args, kwargs, progress, error = texts
    return shape(
        id=task.id,
        name=task.name,
        queue=task.queue,
        key=task.key,
        state=task.state,
        priority=task.priority,
        attempt=task.attempt,
        attempts=jobs[task.name].retry.attempts if task.name in jobs else None,
        created_at=task.created_at,
        due_at=task.due_at,
        scheduled_for=_scheduled_for(task.args),
        started_at=task.started_at,
        ended_at=task.ended_at,
        worker=task.worker,
        cancel_requested=task.cancel_requested,
        args=args,
        kwargs=kwargs,
        progress=progress,
        error=None if error is None else _read_error(error),
        limit=task.limit,
        then_id=task.then_id,
        takes=task.takes,
        blockers=task.blockers,
        **more,
    )


def _call(args: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(args, dict) and isinstance(args.get("args", []), list) and isinstance(args.get("kwargs", {}), dict):
        # The result of the task before it is the first argument.
        first = [args["input"]] if "input" in args else []
        return [*first, *args.get("args", [])], args.get("kwargs", {})
    # Another program wrote it: show it unchanged.
    return (args, {}) if isinstance(args, list) else ([args], {})


def _scheduled_for(args: Any) -> datetime | None:
    instant = args.get("scheduled_for") if isinstance(args, dict) else None
    try:
        return datetime.fromtimestamp(instant, UTC) if isinstance(instant, int | float) else None
    except (ValueError, OverflowError, OSError):
        return None  # another program wrote it


def _error(entry: dict[str, Any]) -> JobError:
    return _read_error(without_secrets(entry))


def _read_error(entry: dict[str, Any]) -> JobError:
    try:
        return msgspec.convert(entry, JobError)
    except msgspec.ValidationError:
        # Another program wrote it: show it in this one field.
        return JobError(error=str(entry.get("error")))


ITEM: dict[str, Any] = {
    "id": 42,
    "name": "audit",
    "queue": "default",
    "key": None,
    "state": "failed",
    "priority": 0,
    "attempt": 3,
    "attempts": 3,
    "created_at": instant_example(0),
    "due_at": instant_example(2),
    "scheduled_for": None,
    "started_at": instant_example(3),
    "ended_at": instant_example(4),
    "worker": "web-1",
    "cancel_requested": False,
    "args": ["https://example.com"],
    "kwargs": {},
    "progress": None,
    "error": {"error": "503 Service Unavailable", "type": "HTTPError", "attempt": 3},
    "limit": {"key": "audit/example.com", "running": 3, "starts": 5, "per_s": 1.0},
    "then_id": None,
    "takes": None,
    "blockers": 0,
}
DETAIL = ITEM | {
    "version": 1,
    "result": None,
    "exact": {},
    "errors": [ITEM["error"] | {"traceback": "Traceback (most recent call last): …"}],
    "trail": [{"what": "failed", "attempt": 3, "error": "503 Service Unavailable", "type": "HTTPError"}],
    "actions": [{"at": instant_example(60), "body": {"what": "retry", "by": "HTTP from 10.1.2.3"}}],
    "rescues": 0,
    "deadline_at": None,
    "waits_for": [],
    "members": None,
}
