"""Series: points for charts, from the figures that workers publish with their heartbeats, never from history."""

import math
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from everpoll.errors import BadInput
from everpoll.monitors.last_look import aheads_of, last_look
from everpoll.policy import seconds
from everpoll.policy.uptime import NOTHING_AHEAD, uptime_of
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import detail
from everpoll.server.shapes import instant, instant_example
from everpoll.stores.figures import DAY_S, FIVE_MINUTES_S, HOUR_S, MINUTE_S, POINTS_LIMIT
from everpoll.stores.health import Step

SeriesName = Literal["throughput", "waiting", "running", "lateness", "uptime"]
POINTS = 60
"""How many points a series has if the query names no step."""
LONGEST_S = 366 * 86_400.0
_UNITS = (
    (4 * HOUR_S, MINUTE_S),
    (12 * HOUR_S, FIVE_MINUTES_S),
    (7 * DAY_S, HOUR_S),
    (LONGEST_S, DAY_S),
)
"""The step is a multiple of the second number for ranges up to the first one."""
_STEPS: dict[int, Step] = {60: "minute", 3_600: "hour", 86_400: "day"}


class SeriesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The series: its kind, range and step, and the queue, name or service."""

    of: SeriesName
    span: str = field(default="1h", name="range")
    """Such as "1h" or "7d"."""
    step: str | None = None
    """Such as "1m" or "1h"; without it, a series has 8 to 60 points."""
    queue: str | None = None
    name: str | None = None
    service: str | None = None
    """The service of an uptime."""


class PointItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step. Steps without figures are left out."""

    at: datetime | None
    counts: dict[str, int] = field(default_factory=dict)
    """For throughput: ended jobs by outcome; for uptime: looks by status."""
    count: int = 0
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    percent: float | None = None
    """For uptime: the share of the known time in which the service was up or degraded."""
    covered: float | None = None
    """For uptime: the known share of the step."""


class SeriesAnswer(Struct, frozen=True, kw_only=True):
    """A series, oldest first."""

    of: SeriesName
    step_s: int
    items: list[PointItem]


async def show_series(call: ApiCall) -> SeriesAnswer:
    """Answer `GET /api/series`."""
    query: SeriesQuery = call.query
    now, span_s = call.serving.app.services.wall(), _seconds("range", query.span)
    if span_s > LONGEST_S:
        raise bad_argument("range", "must be at most a year")
    if query.of == "uptime":
        return await _uptime(call, query, now, span_s)
    if query.service is not None:
        raise bad_argument("service", "is a parameter of uptime only")
    step_s = _step_s(query, span_s)
    store = await call.serving.store()
    found = await store.series(query.of, now - span_s, now, step_s, query.queue, query.name)
    items = [
        PointItem(
            at=instant(one.at), counts=one.counts, count=one.count, p50_s=one.p50_s, p95_s=one.p95_s, p99_s=one.p99_s
        )
        for one in found
    ]
    return SeriesAnswer(of=query.of, step_s=step_s, items=items)


async def _uptime(call: ApiCall, query: SeriesQuery, now: float, span_s: float) -> SeriesAnswer:
    if query.service is None:
        raise bad_argument("service", "is missing: an uptime needs a service")
    await call.serving.app.services.row(query.service)
    step_s = _step_s(query, span_s)
    if query.step is None:
        step_s = next((one for one in _STEPS if span_s / one <= POINTS_LIMIT), 86_400)
    if step_s not in _STEPS:
        raise bad_argument("step", "must be 1m, 1h or 1d for an uptime")
    health = (await call.serving.store()).health
    buckets = await health.rollups(query.service, _STEPS[step_s], now - span_s, now)
    aheads = aheads_of(await last_look(health, query.service, now) if buckets else None, step_s, now)
    items = []
    for bucket in buckets:
        figures = bucket.rollup
        uptime = uptime_of(figures, step_s * 1000, aheads.get(bucket.at, NOTHING_AHEAD))
        counts = {"up": figures.up, "degraded": figures.degraded, "down": figures.down, "unknown": figures.unknown}
        items.append(
            PointItem(
                at=instant(bucket.at),
                counts=counts,
                count=figures.count,
                percent=uptime.percent,
                covered=uptime.covered,
            )
        )
    return SeriesAnswer(of=query.of, step_s=step_s, items=items)


def _step_s(query: SeriesQuery, span_s: float) -> int:
    if query.step is None:
        unit = next(unit for most_s, unit in _UNITS if span_s <= most_s)
        return max(1, math.ceil(span_s / POINTS / unit)) * unit
    step_s = _seconds("step", query.step)
    if step_s != int(step_s) or int(step_s) % MINUTE_S:
        raise bad_argument("step", "must be whole minutes")
    if span_s / step_s > POINTS_LIMIT:
        raise bad_argument("step", f"would give more than {POINTS_LIMIT} points: choose a longer one")
    return int(step_s)


def _seconds(name: str, text: str) -> float:
    try:
        return seconds(text, name=name, positive=True)
    except BadInput as error:
        raise Problem(422, str(error), argument=name) from None


_POINT: dict[str, Any] = {"at": instant_example(0), "counts": {"done": 118, "failed": 2}, "count": 120}

SERIES_ROUTES = [
    detail(
        path="/api/series",
        noun="series",
        summary="Show figures over time: throughput by outcome, waiting and run time, lateness of looks, uptime.",
        handler=show_series,
        query=SeriesQuery,
        answer=SeriesAnswer,
        example={"of": "throughput", "step_s": 60, "items": [_POINT]},
    ),
]
