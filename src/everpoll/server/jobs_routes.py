"""Jobs: list, start, show, explain, cancel and retry."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from everpoll.engine.actors import action
from everpoll.engine.live_workers import gone_here
from everpoll.engine.why import Why
from everpoll.engine.why import why as why_task
from everpoll.errors import TaskNotFound, UnknownJob
from everpoll.http.stored_secrets import without_secrets
from everpoll.jobs.options import EnqueueOptions
from everpoll.server import cursors
from everpoll.server.answers import Reply
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.route import Asked, Route
from everpoll.server.shapes import After, Limit, Page, Reason, instant_example, task_number
from everpoll.stores.contract import Event, OnConflict, Store, TaskFilter, TaskInfo, TaskState
from everpoll.stores.contract import Limit as JobLimit
from everpoll.stores.operations import Retried

LIST = "jobs"
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to list."""

    state: TaskState | None = None
    queue: str | None = None
    name: str | None = None
    error: str | None = None
    """The class of its last error, as "ValueError"."""
    q: str | None = None
    """A text in its arguments, or `member:value`, as "user:7"."""
    since: datetime | None = field(default=None, name="from")
    """Enqueued then or later …"""
    until: datetime | None = field(default=None, name="to")
    """… and before that."""
    retrying: bool = False
    """Only jobs that failed and wait for their next attempt."""
    limit: Limit = 50
    after: After = None

    @property
    def wanted(self) -> TaskFilter:
        """As the store wants it."""
        # Written as in the dashboard: the member of an argument.
        q = None if self.q is None else self.q.removeprefix("args.")
        return TaskFilter(
            state=self.state,
            queue=self.queue,
            name=self.name,
            kind="job",
            error=self.error,
            q=q or None,
            since=self.since,
            until=self.until,
            is_retrying=self.retrying,
        )


class NewJob(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to start: its registered name, its arguments, and the options of `enqueue`."""

    name: Name
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    delay: str | float | None = None
    """`"5s"`, or a number of seconds."""
    priority: Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)] | None = None
    key: Name | None = None
    on_conflict: OnConflict | None = None
    """Where another task has the key: answer with it, refuse (409), or let a waiting one take the new arguments."""
    unique_for: str | float | None = None
    """`"10m"`, or a number of seconds: for so long a task has its key, also if it has ended."""


class CancelOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job or a run is canceled."""

    reason: Reason = ""


class JobError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failed attempt."""

    error: str
    type: str | None = None
    attempt: int | None = None
    at: float | None = None
    by: str | None = None
    why: str | None = None
    traceback: str | None = None


class JobItem(Struct, frozen=True, kw_only=True):
    """A job in a list."""

    id: int
    name: str
    queue: str
    key: str | None
    state: TaskState
    priority: int
    attempt: int
    created_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    cancel_requested: bool
    args: list[Any]
    kwargs: dict[str, Any]
    progress: Any
    error: JobError | None
    """Of its last failed attempt, without traceback."""
    limit: JobLimit | None
    """The key that it counts for, how many of the key may run at a time, and how many may start in a stretch; null: no
    limit."""


class JobAction(Struct, frozen=True, kw_only=True):
    """What an operator did: `what`, `by`, `why`."""

    at: datetime
    body: Any


class JobDetail(JobItem, frozen=True, kw_only=True):
    """Everything about a job."""

    result: Any
    errors: list[JobError]
    """One for each failed attempt, with traceback."""
    trail: list[dict[str, Any]]
    """The decisions about it, in order."""
    actions: list[JobAction]
    """What operators did to it, oldest first."""
    rescues: int
    deadline_at: datetime | None


class JobPage(Page, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs, newest first."""

    items: list[JobItem]
    after: str | None
    searched_back_to: datetime | None = None
    """Set where the page is short because no more jobs were looked at: the oldest of them was enqueued then."""


async def list_jobs(asked: Asked) -> JobPage:
    """Answer `GET /api/jobs`."""
    query: JobsQuery = asked.query
    store = await asked.serving.store()
    page = await store.tasks(query.wanted, query.limit, cursors.read_number(LIST, query.after))
    after = None if page.after is None else cursors.write(LIST, page.after)
    return JobPage(items=[job_item(task) for task in page.tasks], after=after, searched_back_to=page.searched_back_to)


async def start_job(asked: Asked) -> Reply:
    """Answer `POST /api/jobs`."""
    new: NewJob = asked.body
    try:
        job = asked.serving.app.jobs[new.name]
    except UnknownJob as error:
        if not len(asked.serving.app.jobs):
            raise Problem(409, "this server has no jobs: start it with the app that has, everpoll serve APP") from None
        raise bad_argument("name", str(error)) from None
    flaw = job.argument_flaw(new.args, new.kwargs)
    if flaw is not None:
        raise Problem(422, f"job {new.name!r}: {flaw.argument}: {flaw.says}", argument=flaw.argument)
    options = {name: getattr(new, name) for name in EnqueueOptions.__annotations__ if name in NewJob.__struct_fields__}
    given = {name: value for name, value in options.items() if value is not None}
    task = await job.enqueue_call(new.args, new.kwargs, EnqueueOptions(**given))  # type: ignore[typeddict-item]
    asked.serving.changes.changed("jobs", "queues")
    return Reply(await _detail(await asked.serving.store(), task.id), 201 if task.is_new else 200)


async def show_job(asked: Asked) -> JobDetail:
    """Answer `GET /api/jobs/{id}`."""
    return await _detail(await asked.serving.store(), _id(asked))


async def explain_job(asked: Asked) -> Why:
    """Answer `GET /api/jobs/{id}/why`."""
    store = await asked.serving.store()
    task = await _found(store, _id(asked))
    workers = await store.workers()
    losses, queues = await store.losses(task.id), await store.queues()
    limit = None if task.limit is None else await store.limit(task.limit.key)
    return without_secrets_in(why_task(task, workers, queues, losses, datetime.now(UTC), gone_here(workers), limit))


async def cancel_job(asked: Asked) -> JobDetail:
    """Answer `POST /api/jobs/{id}/cancel`."""
    order: CancelOrder = asked.body or CancelOrder()
    store = await asked.serving.store()
    task = await _found(store, _id(asked))
    note = action("cancel", asked.by, order.reason or "canceled over HTTP")
    state = None if task.ended_at is not None else await store.cancel(task.id, note)
    after = await _detail(store, task.id)
    if state is None or (after.state != "canceled" and after.ended_at is not None):
        raise Problem(409, f"task {task.id} has ended already: it is {after.state}")
    asked.serving.changes.changed("jobs", "queues")
    return after


async def retry_job(asked: Asked) -> JobDetail:
    """Answer `POST /api/jobs/{id}/retry`."""
    store = await asked.serving.store()
    task = await _found(store, _id(asked))
    [retried] = await store.retry_many([(task.id, action("retry", asked.by, "retried over HTTP"))])
    if retried.outcome != "queued":
        raise _not_retried(task, retried)
    asked.serving.changes.changed("jobs", "queues")
    return await _detail(store, task.id)


def _not_retried(task: TaskInfo, retried: Retried) -> Problem:
    if retried.outcome == "key_taken":
        told = f"task {task.id} cannot be retried: task {retried.holder} has its key {task.key!r}"
        return Problem(409, told, holder=retried.holder)
    return Problem(409, f"task {task.id} cannot be retried: it has not ended")


async def run_job_now(asked: Asked) -> JobDetail:
    """Answer `POST /api/jobs/{id}/run-now`."""
    store = await asked.serving.store()
    task = await _found(store, _id(asked))
    await asked.serving.app.jobs.task(task.id).run_now(by=asked.by)
    asked.serving.changes.changed("jobs", "queues")
    return await _detail(store, task.id)


async def _detail(store: Store, task_id: int) -> JobDetail:
    return job_detail(await _found(store, task_id), await store.actions_of(task_id))


async def _found(store: Store, task_id: int) -> TaskInfo:
    task = (await store.info([task_id])).get(task_id)
    if task is None:
        raise TaskNotFound(f"no task {task_id}: it never existed here, or its history was dropped")
    if task.kind != "job":
        where = f": GET /api/runs/{task_id}" if task.kind == "watch" else ""
        raise TaskNotFound(f"task {task_id} is a {task.kind}, not a job{where}")
    return task


def _id(asked: Asked) -> int:
    return task_number(asked.params["id"])


def job_item(task: TaskInfo) -> JobItem:
    """Return a job as lists show it."""
    return JobItem(**_item_fields(task))


def job_detail(task: TaskInfo, actions: Sequence[Event]) -> JobDetail:
    """Return everything about a job, without what are secrets by their names."""
    return JobDetail(
        **_item_fields(task),
        result=without_secrets(task.result),
        errors=[_error(entry) for entry in task.errors],
        trail=without_secrets(list(task.trail)),
        actions=[JobAction(at=one.at, body=without_secrets(one.body)) for one in actions],
        rescues=task.rescues,
        deadline_at=task.deadline_at,
    )


def _item_fields(task: TaskInfo) -> dict[str, Any]:
    same = {name: getattr(task, name) for name in JobItem.__struct_fields__ if name in TaskInfo.__struct_fields__}
    last = None if not task.errors else msgspec.structs.replace(_error(task.errors[-1]), traceback=None)
    args, kwargs = _call(task.args)
    return same | {
        "args": without_secrets(args),
        "kwargs": without_secrets(kwargs),
        "progress": without_secrets(task.progress),
        "error": last,
    }


def _call(args: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(args, dict) and isinstance(args.get("args", []), list) and isinstance(args.get("kwargs", {}), dict):
        return args.get("args", []), args.get("kwargs", {})
    # Written by another program: shown as it is.
    return (args, {}) if isinstance(args, list) else ([args], {})


def _error(entry: dict[str, Any]) -> JobError:
    known = {name: entry[name] for name in JobError.__struct_fields__ if entry.get(name) is not None}
    try:
        return msgspec.convert(without_secrets(known), JobError)
    except msgspec.ValidationError:
        return JobError(error=str(without_secrets(known.get("error"))))


def without_secrets_in(why: Why) -> Why:
    """Return an explanation without secrets that an error repeats."""
    said = msgspec.to_builtins(why)
    return msgspec.convert({name: without_secrets(value) for name, value in said.items()}, Why)


ITEM: dict[str, Any] = {
    "id": 42,
    "name": "audit",
    "queue": "default",
    "key": None,
    "state": "failed",
    "priority": 0,
    "attempt": 3,
    "created_at": instant_example(0),
    "due_at": instant_example(2),
    "started_at": instant_example(3),
    "ended_at": instant_example(4),
    "worker": "web-1",
    "cancel_requested": False,
    "args": ["https://example.com"],
    "kwargs": {},
    "progress": None,
    "error": {"error": "503 Service Unavailable", "type": "HTTPError", "attempt": 3},
    "limit": {"key": "audit/example.com", "running": 3, "starts": 5, "per_s": 1.0},
}
DETAIL = ITEM | {
    "result": None,
    "errors": [ITEM["error"] | {"traceback": "Traceback (most recent call last): …"}],
    "trail": [{"what": "failed", "attempt": 3, "error": "503 Service Unavailable", "type": "HTTPError"}],
    "actions": [{"at": instant_example(60), "body": {"what": "retry", "by": "HTTP from 10.1.2.3"}}],
    "rescues": 0,
    "deadline_at": None,
}
WHY = {
    "verdict": "It failed after 3 attempts.",
    "evidence": ["2026-01-02 03:04:09 failed by web-1 (HTTPError: 503 Service Unavailable)"],
    "advice": "retry it when the cause is gone",
}

JOB_ROUTES = [
    Route(
        method="GET",
        path="/api/jobs",
        noun="jobs",
        summary="List jobs, newest first.",
        handler=list_jobs,
        query=JobsQuery,
        answer=JobPage,
        example={"items": [ITEM], "after": None},
    ),
    Route(
        method="POST",
        path="/api/jobs",
        noun="jobs",
        summary="Start a job. With a key that a live task has, that task is the answer (200), or a conflict (409).",
        handler=start_job,
        body=NewJob,
        body_example={"name": "audit", "args": ["https://example.com"], "delay": "5s"},
        answer=JobDetail,
        status=201,
        also=(200,),
        problems=(409,),
        example=DETAIL | {"state": "queued"},
        access="write",
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}",
        noun="jobs",
        summary="Show everything about a job: errors with tracebacks, result, trail.",
        handler=show_job,
        answer=JobDetail,
        example=DETAIL,
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}/why",
        noun="jobs",
        summary="Say why a job is where it is, with the evidence.",
        handler=explain_job,
        answer=Why,
        example=WHY,
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/api/jobs/{id}/cancel",
        noun="jobs",
        summary="End a queued job, or ask the worker of a running one to. 409: it has ended.",
        handler=cancel_job,
        body=CancelOrder,
        needs_body=False,
        body_example={"reason": "the customer left"},
        answer=JobDetail,
        example=DETAIL | {"state": "canceled"},
        problems=(404, 409),
        access="write",
    ),
    Route(
        method="POST",
        path="/api/jobs/{id}/retry",
        noun="jobs",
        summary="Put an ended job back in the queue, with fresh attempts. 409: it has not ended, or its key is taken.",
        handler=retry_job,
        answer=JobDetail,
        example=DETAIL | {"state": "queued"},
        problems=(404, 409),
        access="write",
    ),
    Route(
        method="POST",
        path="/api/jobs/{id}/run-now",
        noun="jobs",
        summary="Make a queued job due at once, whatever delay or backoff it waits for. 409: it runs, or has ended.",
        handler=run_job_now,
        answer=JobDetail,
        example=DETAIL | {"state": "queued"},
        problems=(404, 409),
        access="write",
    ),
]
