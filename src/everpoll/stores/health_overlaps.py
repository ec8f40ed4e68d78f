"""Overlaps: a look counts until the next look at its service, whichever process made it. Pure.

    as planned    A ├──────────────────┤
                          B ├──────────────────┤
    as counted    A ├───────┤
                          B ├──────────────────┤

Looks overlap where a caller asks for one by hand, and where two processes look at the same service. Rolling up and
reading cut them in the same way, so that an answer is the same before and after a roll-up.

Promises: no time is counted twice. A look that was rolled up and is cut short by a later arrival is corrected in its
minute, its hour and its day, as far as it is known: it is one of the last looks, or in the same hour.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, Protocol

from everpoll.policy import Rollup
from everpoll.stores.health_chunks import (
    HOUR_MS,
    HOURS_A_DAY,
    MINUTE_MS,
    MINUTES_AN_HOUR,
    WORDS,
    LookRow,
    newest_end_ms,
    pack_minutes,
    unpack_minutes,
)

_instant = attrgetter("at_ms")


class Buckets(Protocol):
    """Rollups of a service by hour and day, and its packed minutes by hour."""

    minutes: dict[int, bytes]
    hours: dict[int, Rollup]
    days: dict[int, Rollup]


class OverlappingLook(NamedTuple):
    """A look that is in the buckets for too long."""

    look: LookRow
    excess_ms: int


class CountedLooks(NamedTuple):
    """Looks as they count."""

    looks: list[LookRow]
    """New ones, each standing no longer than until the next one."""
    excess: list[OverlappingLook]
    """What they take from known ones."""


def cut_short(known: Sequence[LookRow], rows: Sequence[LookRow]) -> CountedLooks:
    """Let new looks, in order, stand between known ones, in order."""
    if not rows:
        return CountedLooks([], [])
    if not known or known[-1].at_ms < rows[0].at_ms:
        excess = _excess(known[-1], None, rows[0]) if known else []
        return CountedLooks([*(_until(row, after) for row, after in pairwise(rows)), rows[-1]], excess)
    # Some arrived late: they stand between looks that were rolled up before.
    new = {row.at_ms for row in rows}
    following = {row.at_ms: after for row, after in pairwise(sorted([*known, *rows], key=_instant))}
    excess = []
    for place, row in enumerate(known):
        after = following.get(row.at_ms)
        if after is not None and after.at_ms in new:
            excess += _excess(row, known[place + 1] if place + 1 < len(known) else None, after)
    return CountedLooks([_until(row, following.get(row.at_ms)) for row in rows], excess)


def shorten(buckets: Buckets, excess: Iterable[OverlappingLook]) -> None:
    """Subtract the excess from the buckets that exist."""
    for (at_ms, _, status, *_), excess_ms in excess:
        hour, word = at_ms // HOUR_MS, f"{WORDS[status]}_ms"
        if hour in buckets.minutes:
            minutes = unpack_minutes(buckets.minutes[hour])
            _take_off(minutes, at_ms // MINUTE_MS % MINUTES_AN_HOUR, word, excess_ms)
            buckets.minutes[hour] = pack_minutes(minutes)
        _take_off(buckets.hours, hour, word, excess_ms)
        _take_off(buckets.days, hour // HOURS_A_DAY, word, excess_ms)


def overlaps_last(recent: bytes | None, packed_ms: int, first_ms: int) -> bool:
    """Return whether looks from `first_ms` on overlap those that are rolled up; `recent`: the last of these."""
    return recent is not None and (first_ms <= packed_ms or newest_end_ms(recent) > first_ms)


def _until(row: LookRow, after: LookRow | None) -> LookRow:
    """Return the look, standing no longer than until the one after it."""
    if after is None or row.at_ms + row.span_ms <= after.at_ms:
        return row
    return row._replace(span_ms=after.at_ms - row.at_ms)


def _excess(row: LookRow, before: LookRow | None, after: LookRow) -> list[OverlappingLook]:
    """Return for how long a look counts too long: until the look that followed it before, in place of `after`."""
    excess_ms = _until(row, before).span_ms - _until(row, after).span_ms
    return [OverlappingLook(row, excess_ms)] if excess_ms > 0 else []


def _take_off(rollups: dict[int, Rollup], place: int, word: str, excess_ms: int) -> None:
    if place in rollups:
        left_ms = max(0, getattr(rollups[place], word) - excess_ms)
        rollups[place] = replace(rollups[place], **{word: left_ms})
