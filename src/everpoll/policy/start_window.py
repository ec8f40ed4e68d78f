"""Start window: how many tasks may start now, if at most a given number may start in any period of a given length.

    start ──▶ counts for `per` and a margin ──▶ forgotten

Starts within a 64th of the period are counted as one span, which counts until its last start is old enough. So a window
has at most about 65 spans, however many starts it allows. A start may count too long, by at most a 64th of the period,
never too short.

Promises: never more than `limit` starts in any period of `per`; a time without starts allows no more later. Never reads
a clock; instants and periods may be in any unit, but in the same one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SPANS = 64
"""The number of parts into which a period is divided."""
MARGIN_SHARE, LONGEST_MARGIN_S = 0.05, 0.05
"""How much longer than `per` each start counts: a handler begins a little after its lease, by varying times."""


class Span(NamedTuple):
    """Starts that are counted together."""

    began: float
    ended: float
    starts: int


def window_s(per_s: float) -> float:
    """Return how long a start counts: the period and the margin."""
    return per_s + min(per_s * MARGIN_SHARE, LONGEST_MARGIN_S)


def counting(spans: Iterable[Span], now: float, window: float) -> list[Span]:
    """Return the spans that still count."""
    return [span for span in spans if span.ended > now - window]


def left(limit: int, spans: Iterable[Span]) -> int:
    """Return how many more may start now."""
    return max(0, limit - sum(span.starts for span in spans))


def opens_at(spans: Sequence[Span], window: float) -> float:
    """Return when the first span stops counting."""
    return min(span.ended for span in spans) + window


def started(spans: Sequence[Span], now: float, count: int, per: float) -> list[Span]:
    """Return the spans with `count` more starts."""
    if spans and spans[-1].began > now - per / SPANS:
        last = spans[-1]
        return [*spans[:-1], Span(last.began, max(now, last.ended), last.starts + count)]
    return [*spans, Span(now, now, count)]
