"""Packed looks: an hour of one service in one small value.

Columns instead of rows, differences instead of instants, MessagePack, zlib: a look takes 5 to 6 bytes, against 30 to 40
as a row of SQLite and 80 with its index entry in Postgres. A minute's rollup takes about 10.

Promises: unpacking returns exactly what was packed. Never reads more than it is given.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

import msgspec

from everpoll.policy import Availability, Histogram, Rollup
from everpoll.policy.rollup import HealthWord

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MINUTES_AN_HOUR = 60
HOURS_A_DAY = 24
WORDS: tuple[HealthWord, ...] = ("up", "unknown", "degraded", "down")
"""A status is stored as its place in here; the later one is the worse one."""
CODES = {word: code for code, word in enumerate(WORDS)}

_LEVEL = 6
_encode = msgspec.msgpack.Encoder().encode


class LookRow(NamedTuple):
    """A look as it is stored."""

    at_ms: int
    span_ms: int
    status: int
    latency_us: int | None
    http_status: int | None
    error: str | None
    latencies: bytes | None = None
    """The packed latencies of dependencies; see `pack_latencies`."""


class _Looks(msgspec.Struct, array_like=True, gc=False):
    distances_ms: list[int]
    spans_ms: list[int]
    statuses: bytes
    latencies_us: list[int]
    http_statuses: list[int]
    errors: list[str]
    error_numbers: list[int]


class _Minutes(msgspec.Struct, array_like=True, gc=False):
    numbers: bytes
    figures: list[list[int]]
    histograms: list[bytes]


FIGURES = (
    *("up", "degraded", "down", "unknown", "up_ms", "degraded_ms", "down_ms", "unknown_ms"),
    *("timed", "latency_sum_us", "latency_min_us", "latency_max_us"),
)
"""The figures of a rollup, in the order in which they are packed."""
TIMES = ("up_ms", "degraded_ms", "down_ms", "unknown_ms", "timed", "latency_sum_us")
"""The figures of an availability."""

_looks = msgspec.msgpack.Decoder(_Looks)
_minutes = msgspec.msgpack.Decoder(_Minutes)
_latencies = msgspec.msgpack.Decoder(dict[str, int])
_columns = msgspec.msgpack.Decoder(dict[str, list[int]])


def pack_looks(start_ms: int, rows: Sequence[LookRow]) -> bytes:
    """Pack looks that are in order; the first one is counted from `start_ms`."""
    instants, spans_ms, statuses, latencies_us, http_statuses, texts, _ = zip(*rows, strict=True)
    errors: dict[str | None, int] = {None: 0}
    numbers = [errors.setdefault(error, len(errors)) for error in texts]
    return _packed(
        _Looks(
            [after - before for before, after in pairwise((start_ms, *instants))],
            list(spans_ms),
            bytes(statuses),
            [latency_us or 0 for latency_us in latencies_us],
            [http_status or 0 for http_status in http_statuses],
            [error for error in errors if error is not None],
            numbers,
        )
    )


def unpack_looks(start_ms: int, packed: bytes) -> list[LookRow]:
    """Return what `pack_looks` has packed."""
    looks = _looks.decode(zlib.decompress(packed))
    errors = (None, *looks.errors)
    return [
        LookRow(at_ms, span_ms, status, latency_us or None, http_status or None, errors[number])
        for at_ms, span_ms, status, latency_us, http_status, number in zip(
            list(accumulate(looks.distances_ms, initial=start_ms))[1:],
            looks.spans_ms,
            looks.statuses,
            looks.latencies_us,
            looks.http_statuses,
            looks.error_numbers,
            strict=True,
        )
    ]


def unpack_newest(packed: bytes, n: int) -> list[tuple[int, int, int | None]]:
    """Return instant, status and latency of the last of looks that were counted from 0, oldest first."""
    looks = _looks.decode(zlib.decompress(packed))
    instants = list(accumulate(looks.distances_ms))
    latencies_us = [latency_us or None for latency_us in looks.latencies_us[-n:]]
    return list(zip(instants[-n:], looks.statuses[-n:], latencies_us, strict=True))


def newest_end_ms(packed: bytes) -> int:
    """Return until when the last one of looks that were counted from 0 stands."""
    looks = _looks.decode(zlib.decompress(packed))
    return sum(looks.distances_ms) + looks.spans_ms[-1]


def pack_latencies(latencies_us: Mapping[str, int]) -> bytes | None:
    """Return latencies of dependencies at one look, by name; None without any."""
    return _encode(latencies_us) if latencies_us else None


def unpack_latencies(packed: bytes) -> dict[str, int]:
    """Return what `pack_latencies` has packed."""
    return _latencies.decode(packed)


def pack_columns(columns: Mapping[str, Sequence[int]]) -> bytes | None:
    """Return latencies of dependencies at the looks of an hour: for each name a number a look, 0 for none."""
    return _packed(columns) if columns else None


def unpack_columns(packed: bytes | None) -> dict[str, list[int]]:
    """Return what `pack_columns` has packed."""
    return {} if packed is None else _columns.decode(zlib.decompress(packed))


def pack_minutes(rollups: Mapping[int, Rollup]) -> bytes:
    """Pack the minutes of an hour, by their number in it."""
    numbers = sorted(rollups)
    figures = [figures_of(rollups[number]) for number in numbers]
    return _packed(
        _Minutes(
            bytes(numbers),
            [[figure or 0 for figure in column] for column in zip(*figures, strict=True)],
            [rollups[number].histogram.encoded() for number in numbers],
        )
    )


def unpack_minutes(packed: bytes) -> dict[int, Rollup]:
    """Return what `pack_minutes` has packed."""
    minutes = _minutes.decode(zlib.decompress(packed))
    rows = zip(*minutes.figures, strict=True)
    return {
        number: rollup_of(row, histogram)
        for number, row, histogram in zip(minutes.numbers, rows, minutes.histograms, strict=True)
    }


figures_of: Callable[[Rollup], tuple[int | None, ...]] = attrgetter(*FIGURES)
"""The figures of a rollup, in the order of FIGURES."""


def rollup_of(figures: Iterable[int | None], histogram: bytes | None) -> Rollup:
    """Return the rollup with these figures; without a histogram where that was not asked for."""
    up, degraded, down, unknown, up_ms, degraded_ms, down_ms, unknown_ms, timed, sum_us, min_us, max_us = figures
    return Rollup(
        up=up or 0,
        degraded=degraded or 0,
        down=down or 0,
        unknown=unknown or 0,
        up_ms=up_ms or 0,
        degraded_ms=degraded_ms or 0,
        down_ms=down_ms or 0,
        unknown_ms=unknown_ms or 0,
        timed=timed or 0,
        latency_sum_us=sum_us or 0,
        latency_min_us=min_us or None,
        latency_max_us=max_us or None,
        histogram=Histogram.decoded(histogram) if histogram else Histogram(),
    )


times_of: Callable[[Availability], tuple[int, ...]] = attrgetter(*TIMES)
"""The figures of an availability, in the order of TIMES."""


def availability_of(parts: Iterable[Sequence[int | None]]) -> Availability:
    """Return the availability with the sums of these figures, each in the order of TIMES."""
    up_ms, degraded_ms, down_ms, unknown_ms, timed, latency_sum_us = (
        sum(figure or 0 for figure in column) for column in zip(*parts, strict=True)
    )
    return Availability(
        up_ms=up_ms,
        degraded_ms=degraded_ms,
        down_ms=down_ms,
        unknown_ms=unknown_ms,
        timed=timed,
        latency_sum_us=latency_sum_us,
    )


def _packed(value: object) -> bytes:
    return zlib.compress(_encode(value), _LEVEL)
