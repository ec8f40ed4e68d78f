"""Jobs: list, start, show, explain, cancel and retry."""

from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from everpoll.engine.actors import action
from everpoll.engine.live_workers import ended_here
from everpoll.engine.why import Why
from everpoll.engine.why import why as why_task
from everpoll.engine.why_blocked import predecessors_of, why_blocked
from everpoll.errors import JobNotFound, TaskNotFound
from everpoll.jobs.groups import group_info
from everpoll.jobs.options import EnqueueOptions
from everpoll.server import cursors
from everpoll.server.answers import Reply
from everpoll.server.explaining import explanation, without_secrets_in
from everpoll.server.job_filter import JobFilter
from everpoll.server.job_shapes import DETAIL, ITEM, JobDetail, JobPage, job_detail, job_items
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import detail, listing, order
from everpoll.server.shapes import TASKS_LIMIT, After, Limit, Reason, task_number
from everpoll.stores.contract import OnConflict, Store, TaskInfo, TaskPage
from everpoll.stores.flows import GROUP_KIND
from everpoll.stores.operations import Retried

LIST = "jobs"
SEARCHES_LIMIT = 5
"""How many searches a list without a filter makes before its page may be empty: 50,000 tasks that are not jobs."""
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class JobsQuery(JobFilter, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs to list."""

    limit: Limit = 50
    """A page has at most 500 jobs, even with a higher limit: `after` continues the list."""
    after: After = None


_WITHOUT_FILTER = tuple(JobsQuery(state=state).wanted for state in (None, "queued", "running"))


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
    """If another task has the key: return that task, refuse (409), or give a waiting task the new arguments."""
    unique_for: str | float | None = None
    """`"10m"`, or a number of seconds: for so long a task has its key, also if it has ended."""


SHOWN = (GROUP_KIND,)
"""The kinds of tasks that are shown as well as jobs."""


class CancelOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job or a run is canceled."""

    reason: Reason = ""


async def list_jobs(call: ApiCall) -> JobPage:
    """Answer `GET /api/jobs`."""
    query: JobsQuery = call.query
    store = await call.serving.store()
    page = await _page(store, query)
    after = None if page.after is None else cursors.write(LIST, page.after)
    items = job_items(page.tasks, call.serving.app.jobs)
    return JobPage(items=items, after=after, searched_back_to=page.searched_back_to)


async def _page(store: Store, query: JobsQuery) -> TaskPage:
    wanted = query.wanted
    limit = min(query.limit, TASKS_LIMIT)
    page = await store.tasks(wanted, limit, cursors.read_number(LIST, query.after))
    if wanted not in _WITHOUT_FILTER:
        return page
    # Many services and runs may be newer than the newest job: a list without a filter must still find jobs.
    for _ in range(SEARCHES_LIMIT - 1):
        if page.tasks or page.after is None:
            break
        page = await store.tasks(wanted, limit, page.after)
    return page


async def start_job(call: ApiCall) -> Reply:
    """Answer `POST /api/jobs`."""
    new: NewJob = call.body
    try:
        job = call.serving.app.jobs[new.name]
    except JobNotFound as error:
        if not len(call.serving.app.jobs):
            raise Problem(
                409, "this server has no jobs: start it with the app that registers them, everpoll serve APP"
            ) from None
        raise bad_argument("name", str(error)) from None
    flaw = job.argument_flaw(new.args, new.kwargs)
    if flaw is not None:
        raise Problem(422, f"job {new.name!r}: {flaw.argument}: {flaw.says}", argument=flaw.argument)
    options = {name: getattr(new, name) for name in EnqueueOptions.__annotations__ if name in NewJob.__struct_fields__}
    given = {name: value for name, value in options.items() if value is not None}
    task = await job.enqueue_call(new.args, new.kwargs, EnqueueOptions(**given))  # type: ignore[typeddict-item]
    call.serving.changes.changed("jobs", "queues")
    return Reply(await _detail(call, task.id), 201 if task.is_new else 200)


async def show_job(call: ApiCall) -> JobDetail:
    """Answer `GET /api/jobs/{id}`. The end of a group without a callback is shown, too: its members lead to it."""
    store = await call.serving.store()
    return await _detailed(call, store, await _found(store, _id(call), *SHOWN))


async def explain_job(call: ApiCall) -> Why:
    """Answer `GET /api/jobs/{id}/why`."""
    store = await call.serving.store()
    task = await _found(store, _id(call), *SHOWN)
    if task.blockers and (predecessors := await predecessors_of(store, task)) is not None:
        return without_secrets_in(why_blocked(task, predecessors))
    workers = await store.workers()
    losses, queues = await store.losses(task.id), await store.queues()
    limit = None if task.limit is None else await store.limit(task.limit.key)
    return without_secrets_in(why_task(task, workers, queues, losses, datetime.now(UTC), ended_here(workers), limit))


async def cancel_job(call: ApiCall) -> JobDetail:
    """Answer `POST /api/jobs/{id}/cancel`."""
    order: CancelOrder = call.body or CancelOrder()
    store = await call.serving.store()
    task = await _found(store, _id(call))
    note = action("cancel", call.by, order.reason or "canceled over HTTP")
    state = None if task.ended_at is not None else await store.cancel(task.id, note)
    after = await _detail(call, task.id)
    if state is None or (after.state != "canceled" and after.ended_at is not None):
        raise Problem(409, f"task {task.id} has ended already: it is {after.state}")
    call.serving.changes.changed("jobs", "queues")
    return after


async def retry_job(call: ApiCall) -> JobDetail:
    """Answer `POST /api/jobs/{id}/retry`."""
    store = await call.serving.store()
    task = await _found(store, _id(call))
    [retried] = await store.retry_many([(task.id, action("retry", call.by, "retried over HTTP"))])
    if retried.outcome != "queued":
        raise _not_retried(task, retried)
    call.serving.changes.changed("jobs", "queues")
    return await _detail(call, task.id)


def _not_retried(task: TaskInfo, retried: Retried) -> Problem:
    if retried.outcome == "key_taken":
        detail = f"task {task.id} cannot be retried: task {retried.holder} has its key {task.key!r}"
        return Problem(409, detail, holder=retried.holder)
    return Problem(409, f"task {task.id} cannot be retried: it has not ended")


async def run_job_now(call: ApiCall) -> JobDetail:
    """Answer `POST /api/jobs/{id}/run-now`."""
    store = await call.serving.store()
    task = await _found(store, _id(call))
    await call.serving.app.jobs.task(task.id).run_now(by=call.by)
    call.serving.changes.changed("jobs", "queues")
    return await _detail(call, task.id)


async def _detail(call: ApiCall, task_id: int) -> JobDetail:
    store = await call.serving.store()
    return await _detailed(call, store, await _found(store, task_id))


async def _detailed(call: ApiCall, store: Store, task: TaskInfo) -> JobDetail:
    predecessors = await predecessors_of(store, task)
    waits_for = () if predecessors is None else predecessors.first
    group = await group_info(store, task)
    return job_detail(task, call.serving.app.jobs, await store.actions_of(task.id), waits_for, group)


async def _found(store: Store, task_id: int, *kinds: str) -> TaskInfo:
    """Return a job, or a task of one of these kinds."""
    task = (await store.info([task_id])).get(task_id)
    if task is None:
        raise TaskNotFound(f"no task {task_id}: it never existed here, or its history was dropped")
    if task.kind != "job" and task.kind not in kinds:
        where = f": GET /api/runs/{task_id}" if task.kind == "watch" else ""
        raise TaskNotFound(f"task {task_id} is a {task.kind}, not a job{where}")
    return task


def _id(call: ApiCall) -> int:
    return task_number(call.params["id"])


JOB_ROUTES = [
    listing(
        path="/api/jobs",
        noun="jobs",
        summary="List jobs, newest first.",
        handler=list_jobs,
        query=JobsQuery,
        answer=JobPage,
        item=ITEM,
    ),
    order(
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
    ),
    detail(
        path="/api/jobs/{id}",
        noun="jobs",
        summary="Show everything about a job: errors with tracebacks, result, trail.",
        handler=show_job,
        answer=JobDetail,
        example=DETAIL,
    ),
    explanation(
        path="/api/jobs/{id}/why",
        noun="jobs",
        summary="Explain the state of a job, with the evidence.",
        handler=explain_job,
    ),
    order(
        path="/api/jobs/{id}/cancel",
        noun="jobs",
        summary="Cancel a queued job, or ask the worker of a running job to end it. 409: it has ended.",
        handler=cancel_job,
        body=CancelOrder,
        needs_body=False,
        body_example={"reason": "the customer left"},
        answer=JobDetail,
        example=DETAIL | {"state": "canceled"},
        problems=(404, 409),
    ),
    order(
        path="/api/jobs/{id}/retry",
        noun="jobs",
        summary="Put an ended job back in the queue, with fresh attempts. 409: it has not ended, or its key is taken.",
        handler=retry_job,
        answer=JobDetail,
        example=DETAIL | {"state": "queued"},
        problems=(404, 409),
    ),
    order(
        path="/api/jobs/{id}/run-now",
        noun="jobs",
        summary="Make a queued job due at once, and end its delay or backoff. 409: it runs, or has ended.",
        handler=run_job_now,
        answer=JobDetail,
        example=DETAIL | {"state": "queued"},
        problems=(404, 409),
    ),
]
