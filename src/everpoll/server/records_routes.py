"""Records of services: dependencies, history, the graph."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from everpoll.errors import BadInput
from everpoll.monitors.last_look import aheads_of, last_look
from everpoll.monitors.service import Service
from everpoll.policy import seconds
from everpoll.policy.uptime import NOTHING_AHEAD, Ahead, uptime_of
from everpoll.server import cursors
from everpoll.server.answers import Encoded
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.route import ApiCall, Route
from everpoll.server.route_kinds import detail, listing
from everpoll.server.service_graph import GraphAnswer
from everpoll.server.service_shapes import (
    DEPENDENCY,
    LOOK,
    DependencyItem,
    LookItem,
    UptimeShown,
    dependency_item,
    look_item,
    uptime_shown,
)
from everpoll.server.shapes import After, Limit, Page, instant, instant_example
from everpoll.stores.health import Bucket, Step

LONGEST_RANGE_S = 5 * 366 * 86_400.0
STEP_S: dict[Step, float] = {"minute": 60.0, "hour": 3_600.0, "day": 86_400.0}
BUCKETS_LIMIT = 2_000


class DependencyPage(Page, frozen=True, kw_only=True):
    """The dependencies that a service reports, by name."""

    items: list[DependencyItem]
    after: str | None


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The range and the step of a history."""

    span: str = field(default="24h", name="range")
    """Such as "24h" or "7d"."""
    step: Step | None = None
    """Also return the figures of each minute, hour or day."""
    limit: Limit = 1_000
    after: After = None


class BucketItem(Struct, frozen=True, kw_only=True):
    """The figures of one minute, hour or day (UTC)."""

    at: datetime | None
    up: int
    degraded: int
    down: int
    unknown: int
    uptime: UptimeShown
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class HistoryPage(Page, frozen=True, kw_only=True):
    """The looks of a range, newest first, and its figures, oldest first."""

    items: list[LookItem]
    after: str | None
    buckets: tuple[BucketItem, ...] = ()


class GraphQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The part of the graph to show."""

    focus: str | None = None
    """Only things near this one."""
    depth: Annotated[int, Meta(ge=1, le=10)] = 2
    problems: bool = False
    """Only things that are down or degraded, and those that depend on them."""


async def list_dependencies(call: ApiCall) -> DependencyPage:
    """Answer `GET /api/services/{name}/dependencies`."""
    found = await Service(call.serving.app.services, call.params["name"]).dependencies()
    return DependencyPage(items=[dependency_item(one) for one in found], after=None)


async def show_history(call: ApiCall) -> HistoryPage:
    """Answer `GET /api/services/{name}/history`."""
    query: HistoryQuery = call.query
    services, name = call.serving.app.services, call.params["name"]
    await services.row(name)
    health, now = (await call.serving.store()).health, services.wall()
    span_s = _span_s(query.span)
    before_ms = cursors.read_number("history", query.after)
    to_at = now + 1.0 if before_ms is None else before_ms / 1000
    found = await health.looks(name, now - span_s, to_at, query.limit)
    more = cursors.write("history", round(found[-1].at * 1000)) if len(found) == query.limit else None
    buckets: list[Bucket] = []
    if query.step is not None:
        if span_s / STEP_S[query.step] > BUCKETS_LIMIT:
            raise bad_argument("step", f"a range of {query.span} has more than {BUCKETS_LIMIT:,} of these")
        buckets = await health.rollups(name, query.step, now - span_s, now)
    step_s = STEP_S[query.step or "minute"]
    aheads = aheads_of(await last_look(health, name, now) if buckets else None, step_s, now)
    items = [_bucket(one, step_s, aheads.get(one.at, NOTHING_AHEAD)) for one in buckets]
    return HistoryPage(items=[look_item(one) for one in found], after=more, buckets=tuple(items))


def _span_s(text: str) -> float:
    try:
        span_s = seconds(text, name="range", positive=True)
    except BadInput as error:
        raise Problem(422, str(error), argument="range") from None
    if span_s > LONGEST_RANGE_S:
        raise bad_argument("range", "must be at most five years")
    return span_s


def _bucket(bucket: Bucket, step_s: float, ahead: Ahead) -> BucketItem:
    figures = bucket.rollup
    p50_ms, p95_ms, p99_ms = figures.latencies_ms((0.5, 0.95, 0.99))
    return BucketItem(
        at=instant(bucket.at),
        up=figures.up,
        degraded=figures.degraded,
        down=figures.down,
        unknown=figures.unknown,
        uptime=uptime_shown(uptime_of(figures, round(step_s * 1000), ahead)),
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        p99_ms=p99_ms,
    )


async def show_graph(call: ApiCall) -> Encoded:
    """Answer `GET /api/graph`."""
    query: GraphQuery = call.query
    return await call.serving.graphs.answer(query.focus, query.depth, only_problems=query.problems)


_BUCKET: dict[str, Any] = {
    "at": instant_example(0),
    "up": 118,
    "degraded": 0,
    "down": 2,
    "unknown": 0,
    "uptime": {"percent": 98.33, "covered": 1.0},
    "p50_ms": 11.0,
    "p95_ms": 30.0,
    "p99_ms": 55.0,
}
_NODES = [
    {"name": "billing", "is_service": True, "status": "degraded", "since": instant_example(0), "roots": ["PostgreSQL"]},
    {"name": "PostgreSQL", "is_service": False, "status": "down", "since": instant_example(0), "roots": []},
]

RECORD_ROUTES = [
    listing(
        path="/api/services/{name}/dependencies",
        noun="services",
        summary="List the dependencies that a service reports.",
        handler=list_dependencies,
        answer=DependencyPage,
        problems=(404,),
        item=DEPENDENCY,
    ),
    detail(
        path="/api/services/{name}/history",
        noun="services",
        summary="List the looks at a service, newest first; with `step`, its figures over time as well.",
        handler=show_history,
        query=HistoryQuery,
        answer=HistoryPage,
        example={"items": [LOOK], "after": None, "buckets": [_BUCKET]},
    ),
    Route(
        method="GET",
        path="/api/graph",
        noun="services",
        summary="Show services and their dependencies, with the roots of failures.",
        handler=show_graph,
        query=GraphQuery,
        answer=GraphAnswer,
        example={"nodes": _NODES, "edges": [{"source": "billing", "target": "PostgreSQL"}], "is_cut": False},
    ),
]
