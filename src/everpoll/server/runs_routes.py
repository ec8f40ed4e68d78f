"""Runs of watches: list, begin, show, explain, cancel, and follow as a stream."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from everpoll.engine.actors import action
from everpoll.engine.live_workers import gone_here
from everpoll.engine.why import Why
from everpoll.errors import BadInput, TaskNotFound
from everpoll.http.stored_secrets import without_secrets
from everpoll.server import cursors
from everpoll.server.answers import Reply, encoded
from everpoll.server.jobs_routes import WHY, CancelOrder, without_secrets_in
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.route import Asked, Route
from everpoll.server.shapes import After, Limit, Page, instant_example, task_number
from everpoll.server.streams import MEDIA as EVENTS
from everpoll.server.streams import EventStream, frame
from everpoll.stores.contract import Store, TaskFilter, TaskInfo, TaskState
from everpoll.watches import RunEvent, RunInfo, WatchRun
from everpoll.watches.handle import run_info
from everpoll.watches.memory import Outcome
from everpoll.watches.why import why as why_run

LIST = "runs"


class RunsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs to list."""

    state: TaskState | None = None
    watch: str | None = None
    limit: Limit = 50
    after: After = None


class NewRun(Struct, frozen=True, forbid_unknown_fields=True):
    """A run to begin: the watch, an id of the caller's own, and the operation."""

    watch: Annotated[str, Meta(min_length=1, max_length=200)]
    op: Any
    id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """The same id means the same run: a repeat answers with it (200)."""


class ExtendOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What to add to the budget of a run: time, looks, or both."""

    time: str | float | None = None
    """`"10m"`, or a number of seconds."""
    looks: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class RunItem(Struct, frozen=True, kw_only=True):
    """A run in a list."""

    id: str
    watch: str
    task_id: int
    state: TaskState
    phase: str
    outcome: Outcome | None
    reason: str | None
    status: str | None
    """The remote's own word, as last seen."""
    progress: str | None
    looks: int
    errors: int
    created_at: datetime
    next_look_at: datetime | None
    ended_at: datetime | None
    elapsed_s: float | None
    cancel_requested: bool
    budget_s: float | None
    """How long it may be looked at in all, extensions included."""
    budget_looks: int | None
    """How often; null: any number."""
    deadline_at: datetime | None
    """When its time is over, unless its budget stands still."""
    seq: int


class RunDetail(RunItem, frozen=True, kw_only=True):
    """Everything about a run."""

    op: Any
    handle: Any
    value: Any
    evidence: Any
    counters: dict[str, int]
    cleaned: bool | None
    log: list[dict[str, Any]]
    """The decisions, oldest first: which rule made each, and why the next look was when it was."""
    memory: dict[str, Any]
    facts: dict[str, Any]
    trail: list[dict[str, Any]]
    """What happened to its task."""


class RunPage(Page, frozen=True, kw_only=True, omit_defaults=True):
    """Runs, newest first."""

    items: list[RunItem]
    after: str | None
    searched_back_to: datetime | None = None


async def list_runs(asked: Asked) -> RunPage:
    """Answer `GET /api/runs`."""
    query: RunsQuery = asked.query
    store = await asked.serving.store()
    wanted = TaskFilter(state=query.state, name=query.watch, kind="watch", indexed=True)
    page = await store.tasks(wanted, query.limit, cursors.read_number(LIST, query.after))
    after = None if page.after is None else cursors.write(LIST, page.after)
    items = [_item(task) for task in page.tasks]
    return RunPage(items=items, after=after, searched_back_to=page.searched_back_to)


async def begin_run(asked: Asked) -> Reply:
    """Answer `POST /api/runs`."""
    new: NewRun = asked.body
    app = asked.serving.app
    if not len(app.watches):
        raise Problem(409, "this server has no watches: start it with the app that has, everpoll serve APP")
    try:
        watch = app.watches[new.watch]
    except BadInput as error:
        raise bad_argument("watch", str(error)) from None
    run = await watch.begin(new.op, new.id)
    asked.serving.changes.changed("runs")
    return Reply(_detail(await _found(await app.store(), str(run.task_id))), 201 if run.is_new else 200)


async def show_run(asked: Asked) -> RunDetail:
    """Answer `GET /api/runs/{id}`."""
    return _detail(await _asked_for(asked))


async def explain_run(asked: Asked) -> Why:
    """Answer `GET /api/runs/{id}/why`."""
    store, task = await asked.serving.store(), await _asked_for(asked)
    workers = await store.workers()
    losses, queues = await store.losses(task.id), await store.queues()
    return without_secrets_in(why_run(task, workers, queues, losses, datetime.now(UTC), gone_here(workers)))


async def cancel_run(asked: Asked) -> RunDetail:
    """Answer `POST /api/runs/{id}/cancel`."""
    order: CancelOrder = asked.body or CancelOrder()
    task = await _asked_for(asked)
    info = run_info(task)
    if info.outcome is not None:
        raise Problem(409, f"{info.watch}:{info.id} has its outcome already: it is {info.outcome}")
    store = await asked.serving.store()
    await store.cancel(task.id, action("cancel", asked.by, order.reason))
    return await _changed(asked, task)


async def look_at_run_now(asked: Asked) -> RunDetail:
    """Answer `POST /api/runs/{id}/look-now`."""
    task = await _asked_for(asked)
    await _run(asked, task).look_now(by=asked.by)
    return await _changed(asked, task)


async def extend_run(asked: Asked) -> RunDetail:
    """Answer `POST /api/runs/{id}/extend`."""
    order: ExtendOrder = asked.body
    task = await _asked_for(asked)
    await _run(asked, task).extend(order.time, order.looks, by=asked.by)
    return await _changed(asked, task)


def _run(asked: Asked, task: TaskInfo) -> WatchRun:
    return WatchRun(asked.serving.app.watches, task.name, run_info(task).id, task.id, is_new=False)


async def _changed(asked: Asked, task: TaskInfo) -> RunDetail:
    asked.serving.changes.changed("runs")
    return _detail(await _found(await asked.serving.store(), str(task.id)))


async def follow_run(asked: Asked) -> EventStream | Response:
    """Answer `GET /api/runs/{id}/events`."""
    task = await _asked_for(asked)
    info = run_info(task)
    after = _last_number(asked)
    if info.phase == "ended" and after is not None and after >= info.seq:
        # A browser connects again whenever a stream ends; this tells it that nothing is left to come.
        return Response(None, 204)
    return EventStream(asked.serving, _frames(_run(asked, task), after or 0))


async def _frames(run: WatchRun, after: int) -> AsyncGenerator[bytes, None]:
    async for event in run.events(after):
        told = encoded(without_secrets(msgspec.to_builtins(event)))
        if event.kind == "snapshot":
            # Changes that it includes are still to come: the client must not go on behind them.
            yield frame(told, "state", str(after))
        else:
            yield frame(told, "change", str(event.seq))


def _last_number(asked: Asked) -> int | None:
    text = asked.request.headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


async def _asked_for(asked: Asked) -> TaskInfo:
    return await _found(await asked.serving.store(), asked.params["id"])


async def _found(store: Store, name: str) -> TaskInfo:
    if ":" in name:
        task = await store.find("watch", name)
    else:
        number = task_number(name)
        task = (await store.info([number])).get(number)
    if task is None or task.kind != "watch":
        raise TaskNotFound(f"no run {name[:200]!r}: it was never begun here, or its history was dropped")
    return task


def _item(task: TaskInfo) -> RunItem:
    return RunItem(**_item_fields(task, run_info(task)))


def _item_fields(task: TaskInfo, info: RunInfo) -> dict[str, Any]:
    """Return the fields that lists and details share; what a remote may have written is without secrets."""
    return {
        **{name: getattr(info, name) for name in _SAME},
        **{name: without_secrets(getattr(info, name)) for name in _TEXTS},
        "state": task.state,
        "cancel_requested": task.cancel_requested,
    }


def _detail(task: TaskInfo) -> RunDetail:
    info = run_info(task)
    told = {name: without_secrets(msgspec.to_builtins(getattr(info, name))) for name in _OF_DETAILS}
    return RunDetail(**_item_fields(task, info), **told, trail=without_secrets(list(task.trail)))


_TEXTS = ("id", "reason", "status", "progress")
_SAME = tuple(name for name in RunItem.__struct_fields__ if name in RunInfo.__struct_fields__ and name not in _TEXTS)
_OF_DETAILS = tuple(
    name
    for name in RunDetail.__struct_fields__
    if name in RunInfo.__struct_fields__ and name not in RunItem.__struct_fields__
)


ITEM: dict[str, Any] = {
    "id": "run-42",
    "watch": "shell_query",
    "task_id": 7,
    "state": "queued",
    "phase": "looking",
    "outcome": None,
    "reason": None,
    "status": "running",
    "progress": "40 %",
    "looks": 3,
    "errors": 0,
    "created_at": instant_example(0),
    "next_look_at": instant_example(8),
    "ended_at": None,
    "elapsed_s": None,
    "cancel_requested": False,
    "budget_s": 1740.0,
    "budget_looks": 120,
    "deadline_at": instant_example(1740),
    "seq": 2,
}
DETAIL = ITEM | {
    "op": {"query": "select 1"},
    "handle": "q-17",
    "value": None,
    "evidence": None,
    "counters": {"looks": 3},
    "cleaned": None,
    "log": [{"at": 1767323045.0, "rule": "backoff", "why": "look 3", "next_s": 8.0}],
    "memory": {},
    "facts": {},
    "trail": [],
}
_NO_ROWS = (404,)

RUN_ROUTES = [
    Route(
        method="GET",
        path="/api/runs",
        noun="runs",
        summary="List runs of watches, newest first.",
        handler=list_runs,
        query=RunsQuery,
        answer=RunPage,
        example={"items": [ITEM], "after": None},
    ),
    Route(
        method="POST",
        path="/api/runs",
        noun="runs",
        summary="Begin a run. An id that was begun before answers with that run (200).",
        handler=begin_run,
        body=NewRun,
        body_example={"watch": "shell_query", "id": "run-42", "op": {"query": "select 1"}},
        answer=RunDetail,
        status=201,
        also=(200,),
        problems=(409,),
        example=DETAIL,
        access="write",
    ),
    Route(
        method="GET",
        path="/api/runs/{id}",
        noun="runs",
        summary="Show everything about a run. The id is WATCH:RUN, or that of its task.",
        handler=show_run,
        answer=RunDetail,
        example=DETAIL,
        problems=_NO_ROWS,
    ),
    Route(
        method="GET",
        path="/api/runs/{id}/why",
        noun="runs",
        summary="Say why a run is where it is, with the evidence.",
        handler=explain_run,
        answer=Why,
        example=WHY | {"verdict": "It waits for its next look, in 8s."},
        problems=_NO_ROWS,
    ),
    Route(
        method="POST",
        path="/api/runs/{id}/cancel",
        noun="runs",
        summary="Cancel a run: its worker tells the remote, waits for its end and cleans up. 409: it has its outcome.",
        handler=cancel_run,
        body=CancelOrder,
        needs_body=False,
        body_example={"reason": "the customer left"},
        answer=RunDetail,
        example=DETAIL | {"cancel_requested": True},
        problems=(404, 409),
        access="write",
    ),
    Route(
        method="POST",
        path="/api/runs/{id}/look-now",
        noun="runs",
        summary="Make the next look due at once. 409: the run has its outcome.",
        handler=look_at_run_now,
        answer=RunDetail,
        example=DETAIL,
        problems=(404, 409),
        access="write",
    ),
    Route(
        method="POST",
        path="/api/runs/{id}/extend",
        noun="runs",
        summary="Add time, looks, or both to the budget of a run. 409: the run has its outcome.",
        handler=extend_run,
        body=ExtendOrder,
        body_example={"time": "10m", "looks": 20},
        answer=RunDetail,
        example=DETAIL | {"budget_s": 2340.0, "budget_looks": 140},
        problems=(404, 409),
        access="write",
    ),
    Route(
        method="GET",
        path="/api/runs/{id}/events",
        noun="runs",
        summary="Follow a run: `state` now, then each `change`, those behind `Last-Event-ID` first. 204: it has ended.",
        handler=follow_run,
        answer=RunEvent,
        media=EVENTS,
        also=(204,),
        example='id: 0\nevent: state\ndata: {"seq":2,"kind":"snapshot","phase":"looking"}\n\n',
        problems=_NO_ROWS,
    ),
]
