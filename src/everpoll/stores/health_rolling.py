"""Rolling up: looks of one service are added to its hours and days. Pure; the stores read before and write after it.

Promises: every look that is given is added exactly once, so the caller gives each exactly once: it takes the looks out
of where they were in the transaction that writes the result. A look that is cut short by the next one stands for less
time than was planned, also where that one is rolled up later: no time is counted twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from everpoll.policy import Rollup, Tally
from everpoll.stores.health import RECENT_LIMIT
from everpoll.stores.health_chunks import (
    HOUR_MS,
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

MINUTE_MS = 60_000
DAY_MS = 24 * HOUR_MS
HOURS_A_DAY = 24
MINUTES_AN_HOUR = 60
NEVER_MS = -1
"""Before every look."""

_instant = attrgetter("at_ms")


class PackedHour(NamedTuple):
    """The looks of an hour."""

    size: int
    """How many looks."""
    looks: bytes
    latencies: bytes | None
    """Of dependencies."""


@dataclass(slots=True)
class ServiceRecord:
    """What is stored about a service, as far as new looks touch it."""

    packed: dict[int, PackedHour] = field(default_factory=dict)
    minutes: dict[int, bytes] = field(default_factory=dict)
    hours: dict[int, Rollup] = field(default_factory=dict)
    days: dict[int, Rollup] = field(default_factory=dict)
    recent: bytes | None = None
    """The last looks, packed, for sparklines."""
    latencies: bytes | None = None
    """Of dependencies, at the last look that reported any."""
    latencies_ms: int = NEVER_MS
    """When that was."""
    packed_ms: int = NEVER_MS
    """The newest look that was rolled up."""


class Touched(NamedTuple):
    """The hours and days that looks fall into."""

    hours: list[int]
    days: list[int]


def touched(rows: Iterable[LookRow], packed_ms: int = NEVER_MS) -> Touched:
    """Which hours and days a roll-up of these looks reads and writes; `packed_ms`: the newest look that was rolled up.

    The first of the looks may cut that one short.
    """
    places = {row.at_ms // HOUR_MS for row in rows}
    hours = sorted(places if packed_ms == NEVER_MS else places | {packed_ms // HOUR_MS})
    return Touched(hours, sorted({hour // HOURS_A_DAY for hour in hours}))


def roll_up(record: ServiceRecord, rows: Sequence[LookRow]) -> None:
    """Add looks, in the order of their instants, to the record."""
    hours = touched(rows, record.packed_ms).hours
    known = {hour: unpack_looks(hour * HOUR_MS, record.packed[hour].looks) for hour in hours if hour in record.packed}
    before = [row for hour in sorted(known) for row in known[hour]]
    both = zip(rows, _counted(record, before, rows), strict=True)
    for hour, group in groupby(both, key=lambda pair: pair[0].at_ms // HOUR_MS):
        looks, cut = zip(*group, strict=True)
        record.packed[hour] = _with_looks(hour, record.packed.get(hour), known.get(hour, []), looks)
        rolled = tallied(cut, MINUTE_MS)
        minutes = unpack_minutes(record.minutes[hour]) if hour in record.minutes else {}
        for minute, rollup in rolled.items():
            merge_into(minutes, minute % MINUTES_AN_HOUR, rollup)
        record.minutes[hour] = pack_minutes(minutes)
        whole = Rollup.merged(rolled.values())
        merge_into(record.hours, hour, whole)
        merge_into(record.days, hour // HOURS_A_DAY, whole)
    _remember_last(record, rows)


def tallied(rows: Iterable[LookRow], step_ms: int) -> dict[int, Rollup]:
    """The rollup of each step of time that has looks."""
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


def _counted(record: ServiceRecord, known: Sequence[LookRow], rows: Sequence[LookRow]) -> list[LookRow]:
    """The new looks, each standing no longer than until the next one; those that they cut short are corrected."""
    if not known or known[-1].at_ms < rows[0].at_ms:
        if known:
            _correct(record, known[-1], None, rows[0])
        return [*(_until(row, after) for row, after in pairwise(rows)), rows[-1]]
    # Some arrived late: they stand between looks that were rolled up before.
    new = {row.at_ms for row in rows}
    merged = sorted([*known, *rows], key=_instant)
    following = {row.at_ms: after for row, after in pairwise(merged)}
    for place, row in enumerate(known):
        after = following.get(row.at_ms)
        if after is not None and after.at_ms in new:
            _correct(record, row, known[place + 1] if place + 1 < len(known) else None, after)
    return [_until(row, following.get(row.at_ms)) for row in rows]


def _until(row: LookRow, after: LookRow | None) -> LookRow:
    """The look, standing no longer than until the one after it."""
    if after is None or row.at_ms + row.span_ms <= after.at_ms:
        return row
    return row._replace(span_ms=after.at_ms - row.at_ms)


def _correct(record: ServiceRecord, row: LookRow, before: LookRow | None, after: LookRow) -> None:
    """Take off what a look was counted for too long: until the one that followed it before, in place of `after`."""
    excess_ms = _until(row, before).span_ms - _until(row, after).span_ms
    if excess_ms <= 0:
        return
    hour, word = row.at_ms // HOUR_MS, f"{WORDS[row.status]}_ms"

    def shorten(rollups: dict[int, Rollup], place: int) -> None:
        if place in rollups:
            left_ms = max(0, getattr(rollups[place], word) - excess_ms)
            rollups[place] = replace(rollups[place], **{word: left_ms})

    if hour in record.minutes:
        minutes = unpack_minutes(record.minutes[hour])
        shorten(minutes, row.at_ms // MINUTE_MS % MINUTES_AN_HOUR)
        record.minutes[hour] = pack_minutes(minutes)
    shorten(record.hours, hour)
    shorten(record.days, hour // HOURS_A_DAY)


def _with_looks(hour: int, before: PackedHour | None, known: Sequence[LookRow], rows: Sequence[LookRow]) -> PackedHour:
    """The hour with these looks added to those that are known."""
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
    points = [LookRow(row.at_ms, 0, row.status, row.latency_us, None, None) for row in rows[-RECENT_LIMIT:]]
    is_enough = len(points) == RECENT_LIMIT and points[0].at_ms > record.packed_ms
    known = [] if record.recent is None or is_enough else unpack_looks(0, record.recent)
    recent = sorted([*known, *points], key=_instant)[-RECENT_LIMIT:]
    record.recent = pack_looks(0, recent)
    record.packed_ms = max(record.packed_ms, recent[-1].at_ms)
    timed = [row for row in rows if row.latencies is not None]
    if timed and timed[-1].at_ms >= record.latencies_ms:
        record.latencies, record.latencies_ms = timed[-1].latencies, timed[-1].at_ms
