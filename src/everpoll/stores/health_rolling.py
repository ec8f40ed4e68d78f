"""Rolling up: looks of one service are added to its hours and days. Pure; the stores read before and write after it.

Promises: every look that is given is added exactly once, so the caller gives each exactly once: it takes the looks out
of where they were in the transaction that writes the result. No time is counted twice, see `health_overlaps.py`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from everpoll.policy import Rollup, Tally
from everpoll.stores.health import RECENT_LIMIT
from everpoll.stores.health_chunks import (
    HOUR_MS,
    HOURS_A_DAY,
    MINUTE_MS,
    MINUTES_AN_HOUR,
    WORDS,
    LookRow,
    pack_columns,
    pack_looks,
    pack_minutes,
    unpack_columns,
    unpack_latencies,
    unpack_looks,
    unpack_minutes,
)
from everpoll.stores.health_overlaps import cut_short, shorten

NEVER_MS = -1
"""Before every look."""

_instant = attrgetter("at_ms")


class PackedHour(NamedTuple):
    """The looks of an hour."""

    size: int
    """How many looks."""
    looks: bytes
    latencies: bytes | None
    """The latencies of dependencies."""


@dataclass(slots=True)
class ServiceRecord:
    """What is stored about a service, as far as new looks touch it."""

    packed: dict[int, PackedHour] = field(default_factory=dict)
    minutes: dict[int, bytes] = field(default_factory=dict)
    hours: dict[int, Rollup] = field(default_factory=dict)
    days: dict[int, Rollup] = field(default_factory=dict)
    recent: bytes | None = None
    """The last looks, packed: for sparklines, and to see what the next looks cut short."""
    latencies: bytes | None = None
    """The latencies of dependencies at the last look that reported any."""
    latencies_ms: int = NEVER_MS
    """When that was."""
    packed_ms: int = NEVER_MS
    """The newest look that was rolled up."""


class Touched(NamedTuple):
    """The hours and days that looks fall into."""

    hours: list[int]
    days: list[int]


def touched(rows: Iterable[LookRow], recent: bytes | None) -> Touched:
    """Return which hours and days a roll-up of these looks reads and writes; `recent`: the last that were rolled up.

    A look may cut short the one before it, which may be in another hour.
    """
    known = [row.at_ms for row in last_looks(recent)]
    hours = set()
    for row in rows:
        hours.add(row.at_ms // HOUR_MS)
        place = bisect_left(known, row.at_ms)
        if place:
            hours.add(known[place - 1] // HOUR_MS)
    return Touched(sorted(hours), sorted({hour // HOURS_A_DAY for hour in hours}))


def roll_up(record: ServiceRecord, rows: Sequence[LookRow]) -> None:
    """Add looks, in the order of their instants, to the record."""
    hours = touched(rows, record.recent).hours
    known = {hour: unpack_looks(hour * HOUR_MS, record.packed[hour].looks) for hour in hours if hour in record.packed}
    before = {row.at_ms: row for some in (last_looks(record.recent), *known.values()) for row in some}
    cut = cut_short([before[at_ms] for at_ms in sorted(before)], rows)
    shorten(record, cut.excess)
    for hour, group in groupby(zip(rows, cut.looks, strict=True), key=lambda pair: pair[0].at_ms // HOUR_MS):
        looks, counted = zip(*group, strict=True)
        record.packed[hour] = _with_looks(hour, record.packed.get(hour), known.get(hour, []), looks)
        rolled = tallied(counted, MINUTE_MS)
        minutes = unpack_minutes(record.minutes[hour]) if hour in record.minutes else {}
        for minute, rollup in rolled.items():
            merge_into(minutes, minute % MINUTES_AN_HOUR, rollup)
        record.minutes[hour] = pack_minutes(minutes)
        whole = Rollup.merged(rolled.values())
        merge_into(record.hours, hour, whole)
        merge_into(record.days, hour // HOURS_A_DAY, whole)
    _remember_last(record, rows)


def last_looks(recent: bytes | None) -> list[LookRow]:
    """Return the last looks that were rolled up, oldest first."""
    return [] if recent is None else unpack_looks(0, recent)


def tallied(rows: Iterable[LookRow], step_ms: int) -> dict[int, Rollup]:
    """Return the rollup of each step of time that has looks."""
    tallies: dict[int, Tally] = {}
    for row in rows:
        place = row.at_ms // step_ms
        tally = tallies.get(place)
        if tally is None:
            tally = tallies[place] = Tally()
        tally.add(WORDS[row.status], row.span_ms, row.latency_us)
    return {place: tally.rollup() for place, tally in tallies.items()}


def merge_into(rollups: dict[int, Rollup], place: int, rollup: Rollup) -> None:
    """Add a rollup to the one of its place."""
    rollups[place] = Rollup.merged([rollups[place], rollup]) if place in rollups else rollup


def _with_looks(hour: int, before: PackedHour | None, known: Sequence[LookRow], rows: Sequence[LookRow]) -> PackedHour:
    """Return the hour with these looks added to those that are known."""
    start_ms = hour * HOUR_MS
    columns = {} if before is None else unpack_columns(before.latencies)
    new = [{} if row.latencies is None else unpack_latencies(row.latencies) for row in rows]
    for name in sorted(columns.keys() | {name for latencies in new for name in latencies}):
        columns[name] = columns.get(name, [0] * len(known)) + [latencies.get(name, 0) for latencies in new]
    together = [*known, *rows]
    if known and known[-1].at_ms > rows[0].at_ms:
        order = sorted(range(len(together)), key=lambda place: together[place].at_ms)
        together = [together[place] for place in order]
        columns = {name: [column[place] for place in order] for name, column in columns.items()}
    return PackedHour(len(together), pack_looks(start_ms, together), pack_columns(columns))


def _remember_last(record: ServiceRecord, rows: Sequence[LookRow]) -> None:
    points = [row._replace(http_status=None, error=None, latencies=None) for row in rows[-RECENT_LIMIT:]]
    is_enough = len(points) == RECENT_LIMIT and points[0].at_ms > record.packed_ms
    known = [] if is_enough else last_looks(record.recent)
    recent = sorted([*known, *points], key=_instant)[-RECENT_LIMIT:]
    record.recent = pack_looks(0, recent)
    record.packed_ms = max(record.packed_ms, recent[-1].at_ms)
    timed = [row for row in rows if row.latencies is not None]
    if timed and timed[-1].at_ms >= record.latencies_ms:
        record.latencies, record.latencies_ms = timed[-1].latencies, timed[-1].at_ms
