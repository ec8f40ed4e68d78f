"""Runs of watches: list, begin, show, explain, cancel, and follow as a stream."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from everpoll.engine.actors import action
from everpoll.engine.live_workers import ended_here
from everpoll.engine.why import Why
from everpoll.errors import TaskNotFound, WatchNotFound
from everpoll.http.stored_secrets import without_secrets
from everpoll.server import cursors
from everpoll.server.answers import Reply, encoded
from everpoll.server.explaining import explanation, without_secrets_in
from everpoll.server.jobs_routes import CancelOrder
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.queues_routes import PauseOrder
from everpoll.server.route import ApiCall, Route
from everpoll.server.route_kinds import detail, listing, order
from everpoll.server.run_shapes import DETAIL, ITEM, RunDetail, RunPage, run_detail, run_items
from everpoll.server.shapes import TASKS_LIMIT, After, Limit, instant_example, task_number
from everpoll.server.streams import MEDIA as EVENTS
from everpoll.server.streams import EventStream, frame
from everpoll.stores.contract import Store, TaskFilter, TaskInfo, TaskState
from everpoll.watches import RunEvent, WatchRun
from everpoll.watches.run_info import run_info
from everpoll.watches.why import why as why_run

LIST = "runs"


class RunsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs to list."""

    state: TaskState | None = None
    watch: str | None = None
    ended_from: datetime | None = None
    """Only runs that ended at this time or later."""
    ended_to: datetime | None = None
    """Only runs that ended before this time."""
    limit: Limit = 50
    """A page has at most 500 runs, even with a higher limit: `after` continues the list."""
    after: After = None


class NewRun(Struct, frozen=True, forbid_unknown_fields=True):
    """A run to begin: the watch, an id of the caller's own, and the operation."""

    watch: Annotated[str, Meta(min_length=1, max_length=200)]
    op: Any
    id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """The same id means the same run: a repeat returns that run (200)."""


class ExtendOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Time, looks or both to add to the budget of a run."""

    time: str | float | None = None
    """`"10m"`, or a number of seconds."""
    looks: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


async def list_runs(call: ApiCall) -> RunPage:
    """Answer `GET /api/runs`."""
    query: RunsQuery = call.query
    store = await call.serving.store()
    wanted = TaskFilter(
        state=query.state,
        name=query.watch,
        kind="watch",
        indexed=True,
        ended_since=query.ended_from,
        ended_until=query.ended_to,
    )
    page = await store.tasks(wanted, min(query.limit, TASKS_LIMIT), cursors.read_number(LIST, query.after))
    after = None if page.after is None else cursors.write(LIST, page.after)
    return RunPage(items=run_items(page.tasks), after=after, searched_back_to=page.searched_back_to)


async def begin_run(call: ApiCall) -> Reply:
    """Answer `POST /api/runs`."""
    new: NewRun = call.body
    app = call.serving.app
    if not len(app.watches):
        raise Problem(409, "this server has no watches: start it with the app that registers them, everpoll serve APP")
    try:
        watch = app.watches[new.watch]
    except WatchNotFound as error:
        raise bad_argument("watch", str(error)) from None
    run = await watch.begin(new.op, new.id)
    call.serving.changes.changed("runs")
    return Reply(run_detail(await _found(await app.store(), str(run.task_id))), 201 if run.is_new else 200)


async def show_run(call: ApiCall) -> RunDetail:
    """Answer `GET /api/runs/{id}`."""
    return run_detail(await _asked_for(call))


async def explain_run(call: ApiCall) -> Why:
    """Answer `GET /api/runs/{id}/why`."""
    store, task = await call.serving.store(), await _asked_for(call)
    workers = await store.workers()
    losses, queues = await store.losses(task.id), await store.queues()
    return without_secrets_in(why_run(task, workers, queues, losses, datetime.now(UTC), ended_here(workers)))


async def cancel_run(call: ApiCall) -> RunDetail:
    """Answer `POST /api/runs/{id}/cancel`."""
    order: CancelOrder = call.body or CancelOrder()
    task = await _asked_for(call)
    info = run_info(task)
    if info.outcome is not None:
        raise Problem(409, f"{info.watch}:{info.id} has its outcome already: it is {info.outcome}")
    store = await call.serving.store()
    await store.cancel(task.id, action("cancel", call.by, order.reason))
    return await _changed(call, task)


async def look_at_run_now(call: ApiCall) -> RunDetail:
    """Answer `POST /api/runs/{id}/look-now`."""
    task = await _asked_for(call)
    await _run(call, task).look_now(by=call.by)
    return await _changed(call, task)


async def extend_run(call: ApiCall) -> RunDetail:
    """Answer `POST /api/runs/{id}/extend`."""
    order: ExtendOrder = call.body
    task = await _asked_for(call)
    await _run(call, task).extend(order.time, order.looks, by=call.by)
    return await _changed(call, task)


async def pause_run(call: ApiCall) -> RunDetail:
    """Answer `POST /api/runs/{id}/pause`."""
    order: PauseOrder = call.body or PauseOrder()
    task = await _asked_for(call)
    await _run(call, task).pause(order.reason, by=call.by)
    return await _changed(call, task)


async def resume_run(call: ApiCall) -> RunDetail:
    """Answer `POST /api/runs/{id}/resume`."""
    task = await _asked_for(call)
    run = _run(call, task)
    if not await run.resume(by=call.by):
        raise Problem(409, f"{run.watch}:{run.id} is not paused")
    return await _changed(call, task)


def _run(call: ApiCall, task: TaskInfo) -> WatchRun:
    return WatchRun(call.serving.app.watches, task.name, run_info(task).id, task.id, is_new=False)


async def _changed(call: ApiCall, task: TaskInfo) -> RunDetail:
    call.serving.changes.changed("runs")
    return run_detail(await _found(await call.serving.store(), str(task.id)))


async def follow_run(call: ApiCall) -> EventStream | Response:
    """Answer `GET /api/runs/{id}/events`."""
    task = await _asked_for(call)
    info = run_info(task)
    after = _last_number(call)
    if info.phase == "ended" and after is not None and after >= info.seq:
        # A browser connects again whenever a stream ends; this tells it that no event will follow.
        return Response(None, 204)
    return EventStream(call.serving, _frames(_run(call, task), after or 0))


async def _frames(run: WatchRun, after: int) -> AsyncGenerator[bytes, None]:
    async for event in run.events(after):
        body = encoded(without_secrets(msgspec.to_builtins(event)))
        if event.kind == "snapshot":
            # The changes in the snapshot are sent after it, so the client must not continue after them.
            yield frame(body, "state", str(after))
        else:
            yield frame(body, "change", str(event.seq))


def _last_number(call: ApiCall) -> int | None:
    text = call.request.headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


async def _asked_for(call: ApiCall) -> TaskInfo:
    return await _found(await call.serving.store(), call.params["id"])


async def _found(store: Store, name: str) -> TaskInfo:
    if ":" in name:
        task = await store.find("watch", name)
    else:
        number = task_number(name)
        task = (await store.info([number])).get(number)
    if task is None or task.kind != "watch":
        raise TaskNotFound(f"no run {name[:200]!r}: it was never begun here, or its history was dropped")
    return task


_NO_ROWS = (404,)
_PAUSED = {"reason": "the remote is being moved", "by": "HTTP from 10.1.2.3", "at": instant_example(0)}

RUN_ROUTES = [
    listing(
        path="/api/runs",
        noun="runs",
        summary="List runs of watches, newest first.",
        handler=list_runs,
        query=RunsQuery,
        answer=RunPage,
        item=ITEM,
    ),
    order(
        path="/api/runs",
        noun="runs",
        summary="Begin a run. If a run has the id already, that run is returned (200).",
        handler=begin_run,
        body=NewRun,
        body_example={"watch": "shell_query", "id": "run-42", "op": {"query": "select 1"}},
        answer=RunDetail,
        status=201,
        also=(200,),
        problems=(409,),
        example=DETAIL,
    ),
    detail(
        path="/api/runs/{id}",
        noun="runs",
        summary="Show everything about a run. The id is WATCH:RUN, or that of its task.",
        handler=show_run,
        answer=RunDetail,
        example=DETAIL,
    ),
    explanation(
        path="/api/runs/{id}/why",
        noun="runs",
        summary="Explain the state of a run, with the evidence.",
        handler=explain_run,
        example={"verdict": "It waits for its next look, in 8s."},
    ),
    order(
        path="/api/runs/{id}/cancel",
        noun="runs",
        summary="Cancel a run: a worker cancels it at the remote and cleans up. 409: it has its outcome.",
        handler=cancel_run,
        body=CancelOrder,
        needs_body=False,
        body_example={"reason": "the customer left"},
        answer=RunDetail,
        example=DETAIL | {"cancel_requested": True},
        problems=(404, 409),
    ),
    order(
        path="/api/runs/{id}/look-now",
        noun="runs",
        summary="Make the next look due at once. 409: the run has its outcome.",
        handler=look_at_run_now,
        answer=RunDetail,
        example=DETAIL,
        problems=(404, 409),
    ),
    order(
        path="/api/runs/{id}/extend",
        noun="runs",
        summary="Add time, looks, or both to the budget of a run. 409: the run has its outcome.",
        handler=extend_run,
        body=ExtendOrder,
        body_example={"time": "10m", "looks": 20},
        answer=RunDetail,
        example=DETAIL | {"budget_s": 2340.0, "budget_looks": 140},
        problems=(404, 409),
    ),
    order(
        path="/api/runs/{id}/pause",
        noun="runs",
        summary="Pause a run: no worker looks at it, and its budget stands still. 409: it has its outcome.",
        handler=pause_run,
        body=PauseOrder,
        needs_body=False,
        body_example={"reason": "the remote is being moved"},
        answer=RunDetail,
        example=DETAIL | {"phase": "paused", "next_look_at": None, "deadline_at": None, "paused": _PAUSED},
        problems=(404, 409),
    ),
    order(
        path="/api/runs/{id}/resume",
        noun="runs",
        summary="Resume a run: its next look is due at once. 409: it is not paused, or has its outcome.",
        handler=resume_run,
        answer=RunDetail,
        example=DETAIL,
        problems=(404, 409),
    ),
    Route(
        method="GET",
        path="/api/runs/{id}/events",
        noun="runs",
        summary="Follow a run: `state` now, then each `change`, those after `Last-Event-ID` first. 204: it has ended.",
        handler=follow_run,
        answer=RunEvent,
        media=EVENTS,
        also=(204,),
        example='id: 0\nevent: state\ndata: {"seq":2,"kind":"snapshot","phase":"looking"}\n\n',
        problems=_NO_ROWS,
    ),
]
