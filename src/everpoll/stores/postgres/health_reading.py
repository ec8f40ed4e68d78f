"""Reading what is recorded about services. One statement for each answer, so one snapshot.

Promises: what a caller requests is found by its service, its hour or its day, see `functions/health_*.sql`.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from everpoll.drivers.postgres.lane import Lane
from everpoll.policy import Availability
from everpoll.stores.health import DependencyInfo, Edge, EdgePage, ErrorEntry, LatencyPoint, Look, LookPoint
from everpoll.stores.health_answers import (
    HistoryRequest,
    PackedRow,
    dependency_of,
    error_of,
    latencies_of,
    latest_of,
    looks_of,
    newer,
    points_of,
)
from everpoll.stores.health_batches import DependencyRow
from everpoll.stores.health_chunks import LookRow, availability_of, rollup_of, times_of
from everpoll.stores.health_overlaps import overlaps_last
from everpoll.stores.health_ranges import Found, Horizon, RangeQuery, for_summary, hour_on, since, summary_of
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.health_recording import HORIZON

ALL_LOOKS = 2**31 - 1
LOOKS = versioned("select * from everpoll.health_looks_between($1, $2, $3, $4)")
LAST_LOOKS = versioned("select * from everpoll.health_last_looks($1, $2)")
FOUND = versioned("select * from everpoll.health_found($1, $2, $3, $4, $5)")
AVAILABILITY = versioned("select * from everpoll.health_availability($1, $2, $3, $4, $5)")
DEPENDENCIES = versioned("select * from everpoll.health_dependencies_of($1)")
EDGES = versioned("select * from everpoll.health_edges($1, $2, $3)")
ERRORS = versioned("select * from everpoll.health_errors_of($1, $2, $3)")


async def looks(lane: Lane, service: str, request: HistoryRequest) -> list[Look]:
    """Return looks of a range, newest first."""
    return looks_of(request, *_split(await lane.rows(LOOKS, service, *request)))


async def latencies(lane: Lane, service: str, dependency: str, request: HistoryRequest) -> list[LatencyPoint]:
    """Return latencies of a dependency in a range, newest first. Only unpacked looks tell whether they have one."""
    rows = await lane.rows(LOOKS, service, request.from_ms, request.to_ms, ALL_LOOKS)
    return latencies_of(dependency, request, *_split(rows))


def _split(rows: list[Any]) -> tuple[list[LookRow], list[PackedRow]]:
    """Return looks that are not rolled up, and packed hours."""
    return (
        [LookRow._make((*row[1:7], row["latencies"])) for row in rows if row["hour"] is None],
        [PackedRow(row["hour"], row["looks"], row["latencies"]) for row in rows if row["hour"] is not None],
    )


async def last_looks(lane: Lane, services: Sequence[str], n: int) -> dict[str, list[LookPoint]]:
    """Return the last looks at each of many services, newest first."""
    found = {}
    for name, recent, packed_ms, ats, statuses, latencies_us in await lane.rows(LAST_LOOKS, list(services), n):
        points = list(zip(ats or (), statuses or (), latencies_us or (), strict=True))
        found[name] = points_of(n, points, recent, packed_ms)
    return found


async def dependencies(lane: Lane, service: str) -> list[DependencyInfo]:
    """Return the dependencies that a service reports, or reported earlier."""
    rows = await lane.rows(DEPENDENCIES, service)
    if not rows:
        return []
    rolled_ms, rolled, open_ms, newest = rows[0][:4]
    latest = newer(latest_of(open_ms, newest), latest_of(rolled_ms, rolled))
    return [dependency_of(DependencyRow(*row[5:]), row[4], latest) for row in rows]


async def edges(lane: Lane, after: tuple[str, str], limit: int) -> EdgePage:
    """Return the dependencies of all services, ordered by service and name, after a service and a name."""
    found = tuple(Edge(*row) for row in await lane.rows(EDGES, *after, limit + 1))
    page = found[:limit]
    return EdgePage(page, (page[-1].service, page[-1].name) if len(found) > limit else None)


async def errors(lane: Lane, service: str, dependency: str, limit: int) -> list[ErrorEntry]:
    """Return the error history of a dependency, newest first."""
    return [error_of(*row) for row in await lane.rows(ERRORS, service, dependency, limit)]


async def found_for(lane: Lane, service: str, wanted: RangeQuery) -> Found:
    """Return the rows that the tables have for this request."""
    days = wanted.days
    rows = await lane.rows(FOUND, service, days.start, days.stop - 1, wanted.hours, wanted.minutes)
    found = Found()
    for kind, place, figures, packed in rows:
        match kind:
            case 1:
                found.days[place] = rollup_of(figures, packed)
            case 2:
                found.hours[place] = rollup_of(figures, packed)
            case 3:
                found.minutes[place] = packed
            case 4:
                span_ms, status, latency_us = figures
                found.looks.append(LookRow(place, span_ms, status, latency_us, None, None))
            case 5:
                found.horizon = Horizon(*figures)
            case _:
                found.recent = packed
    return found


async def horizon_of(lane: Lane) -> Horizon:
    """Return the instants up to which records were pruned."""
    row = await lane.row(HORIZON)
    return Horizon() if row is None else Horizon(*row)


async def availability(lane: Lane, services: Sequence[str], from_at: float) -> dict[str, Availability]:
    """Return the availability since an hour, of each of many services."""
    wanted = since(from_at, await horizon_of(lane))
    hours = (wanted.hours.start, wanted.hours.stop)
    parts: defaultdict[str, list[list[int | None]]] = defaultdict(list)
    overlapping = []
    rows = await lane.rows(AVAILABILITY, list(services), wanted.first_day, *hours, wanted.from_ms)
    for name, times, first_ms, packed_ms, recent in rows:
        parts[name].append(times)
        if first_ms is not None and overlaps_last(recent, packed_ms, first_ms):
            overlapping.append(name)
    found = {name: availability_of(times) for name, times in parts.items()}
    for name in overlapping:
        found[name] = await _counted_since(lane, name, from_at)
    return found


async def _counted_since(lane: Lane, service: str, from_at: float) -> Availability:
    """Return the availability of a service whose looks overlap those that are rolled up: counted one by one."""
    wanted = for_summary(*hour_on(from_at))
    return availability_of([times_of(summary_of(wanted, await found_for(lane, service, wanted)))])
