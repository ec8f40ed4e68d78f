"""Answers about services, made of the rows that a store has read. Pure.

Looks that are not rolled up and packed looks may interleave, because a look can arrive late: of both the newest are
taken, as many as the caller wants, and then the newest of all.
"""

from collections.abc import Iterable
from heapq import nlargest
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec

from everpoll.errors import BadInput
from everpoll.stores.health import DependencyInfo, ErrorEntry, LatencyPoint, Look, LookPoint
from everpoll.stores.health_batches import DependencyRow
from everpoll.stores.health_chunks import (
    HOUR_MS,
    WORDS,
    LookRow,
    unpack_columns,
    unpack_latencies,
    unpack_looks,
    unpack_newest,
)
from everpoll.stores.health_ranges import bounds_ms

_instant = attrgetter("at_ms")


class PackedRow(NamedTuple):
    """The packed looks of an hour, and the latencies of dependencies at them."""

    hour: int
    looks: bytes
    latencies: bytes | None


class HistoryRequest(NamedTuple):
    """Instants of a range, and how many of the newest are wanted."""

    from_ms: int
    to_ms: int
    limit: int

    @property
    def hours(self) -> range:
        """The hours that the range touches."""
        return range(self.from_ms // HOUR_MS, -(-self.to_ms // HOUR_MS))


def history_request(from_at: float, to_at: float, limit: int) -> HistoryRequest:
    """Check and return the request of a caller.

    `BadInput` for a range that ends before it begins, and for a limit below 1.
    """
    check_limit("limit", limit)
    return HistoryRequest(*bounds_ms(from_at, to_at), limit)


def check_limit(name: str, limit: int, most: int = 2**31) -> None:
    """Raise `BadInput` for a limit that is not between 1 and `most`."""
    if not 1 <= limit <= most:
        raise BadInput(f"{name} must be between 1 and {most:,}, not {limit!r}")


def looks_of(request: HistoryRequest, rows: Iterable[LookRow], packed: Iterable[PackedRow]) -> list[Look]:
    """Return the looks of a range, newest first. Of the packed hours, newest first, as many are taken as are needed."""
    found = list(rows)
    left = request.limit
    for hour in packed:
        unpacked = unpack_looks(hour.hour * HOUR_MS, hour.looks)
        rows_of_hour = [row for row in unpacked if request.from_ms <= row.at_ms < request.to_ms]
        found += rows_of_hour
        left -= len(rows_of_hour)
        if left <= 0:
            break
    return [look_of(row) for row in nlargest(request.limit, found, key=_instant)]


def latencies_of(
    dependency: str, request: HistoryRequest, rows: Iterable[LookRow], packed: Iterable[PackedRow]
) -> list[LatencyPoint]:
    """Return the latencies of a dependency in a range, newest first."""
    found = [
        (row.at_ms, latency)
        for row in rows
        if row.latencies is not None and (latency := unpack_latencies(row.latencies).get(dependency))
    ]
    left = request.limit
    for hour in packed:
        column = unpack_columns(hour.latencies).get(dependency)
        if column is not None:
            pairs = zip(unpack_looks(hour.hour * HOUR_MS, hour.looks), column, strict=True)
            points = [
                (row.at_ms, value) for row, value in pairs if value and request.from_ms <= row.at_ms < request.to_ms
            ]
            found += points
            left -= len(points)
            if left <= 0:
                break
    return [LatencyPoint(at_ms / 1_000, latency / 1_000) for at_ms, latency in nlargest(request.limit, found)]


Point = tuple[int, int, int | None]
"""Instant in milliseconds, status and latency in microseconds of a look."""


def points_of(n: int, points: list[Point], recent: bytes | None, packed_ms: int) -> list[LookPoint]:
    """Return the last looks at a service, newest first, whether rolled up or not (those are newest first)."""
    if recent is not None and (len(points) < n or points[n - 1][0] < packed_ms):
        newest = unpack_newest(recent, n)[::-1]
        is_in_order = not points or points[-1][0] > packed_ms
        points = [*points, *newest] if is_in_order else sorted([*points, *newest], key=itemgetter(0), reverse=True)
    # Ten thousand looks on a page of 200 services: one expression for each, without a call.
    return [
        LookPoint(at_ms / 1_000, WORDS[status], None if latency_us is None else latency_us / 1_000)
        for at_ms, status, latency_us in points[:n]
    ]


def look_of(row: LookRow) -> Look:
    """Return a look as it is read."""
    return Look(
        at=row.at_ms / 1_000,
        status=WORDS[row.status],
        span_s=row.span_ms / 1_000,
        latency_ms=_ms(row.latency_us),
        error=row.error,
        http_status=row.http_status,
    )


class Latest(NamedTuple):
    """The latencies of dependencies at the last look that reported any."""

    at_ms: int
    latencies_us: dict[str, int]


def latest_of(at_ms: int | None, packed: bytes | None) -> Latest | None:
    """Return the latencies as they were packed; None without any."""
    return None if at_ms is None or packed is None else Latest(at_ms, unpack_latencies(packed))


def dependency_of(row: DependencyRow, canonical: str | None, latest: Latest | None) -> DependencyInfo:
    """Return a dependency as it is read. Its latency is that of the latest look, even if nothing else changed."""
    latency = row.latency_us
    if latest is not None and latest.at_ms > row.at_ms:
        latency = latest.latencies_us.get(row.name)
    return DependencyInfo(
        name=row.name,
        canonical=row.name if canonical is None else canonical,
        status=row.status,
        changed_at=row.changed_ms / 1_000,
        seen_at=row.seen_ms / 1_000,
        vanished=bool(row.vanished),
        skipped=bool(row.skipped),
        latency_ms=_ms(latency),
        type=row.type,
        impact=row.impact,
        description=row.description,
        contact=_decoded(row.contact),
        check_details=_decoded(row.check_details),
        error=_decoded(row.error),
        error_message=row.error_message,
    )


def error_of(at_ms: int, error: str | None, error_message: str | None) -> ErrorEntry:
    """Return an entry of the error history as it is read."""
    return ErrorEntry(at_ms / 1_000, _decoded(error), error_message)


def newer(one: Latest | None, other: Latest | None) -> Latest | None:
    """Return the newer of two, where there are two."""
    if one is None or other is None:
        return one or other
    return one if one.at_ms > other.at_ms else other


def _ms(latency: int | None) -> float | None:
    return None if latency is None else latency / 1_000


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
