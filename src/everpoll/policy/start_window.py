"""Start window: how many tasks may start now, if any stretch of time has at most a given number of starts.

    start ──▶ counts for `per` and a margin ──▶ forgotten

Starts that follow one another within a 64th of the stretch are one span, which counts until its last start is old
enough. So a window never has more than some 65 spans, however many starts it allows, and it errs on the safe side: by
at most a 64th of the stretch.

Promises: never more than `limit` starts in any stretch of `per`, and nothing is saved up while nothing starts. Never
reads a clock; instants and stretches are in one unit, whatever it is.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SPANS = 64
"""A stretch is cut into so many pieces."""
MARGIN_SHARE, LONGEST_MARGIN_S = 0.05, 0.05
"""A handler begins a little after its lease, and not always equally late: so much longer does each start count."""


class Span(NamedTuple):
    """Starts that are counted together."""

    began: float
    ended: float
    starts: int


def window_s(per_s: float) -> float:
    """Return how long a start counts: the stretch and the margin."""
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
    """Return the spans with so many more starts."""
    if spans and spans[-1].began > now - per / SPANS:
        last = spans[-1]
        return [*spans[:-1], Span(last.began, max(now, last.ended), last.starts + count)]
    return [*spans, Span(now, now, count)]
