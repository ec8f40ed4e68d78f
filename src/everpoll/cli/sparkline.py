"""The last looks at a service as a line of small bars: the height is the latency, the colour the status.

    ▃▃▃▅▃▃xxx▃▃     x down, · unknown; ▃ is the median latency, and two steps higher is twice as long

Pure.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Protocol

from rich.text import Text

from everpoll.cli.health_display import STATUS_STYLE

BARS = "▁▂▃▄▅▆▇█"
MIDDLE = 2
"""The height of the median latency, so that slow looks stand out."""


_TIMED = frozenset({"up", "degraded"})


class Point(Protocol):
    """One look."""

    @property
    def status(self) -> str: ...  # noqa: D102 - as in `LookPoint`
    @property
    def latency_ms(self) -> float | None: ...  # noqa: D102


def sparkline(newest_first: Sequence[Point], columns: int) -> Text:
    """Return the last looks, the newest at the right end."""
    points = list(reversed(newest_first[:columns]))
    latencies = [one.latency_ms for one in points if one.status in _TIMED and one.latency_ms and one.latency_ms > 0]
    median_ms = statistics.median_low(latencies) if latencies else 0.0
    line = Text()
    for one in points:
        line.append(_glyph(one, median_ms), STATUS_STYLE[one.status])
    return line


def _glyph(point: Point, median_ms: float) -> str:
    if point.status == "down":
        return "x"
    if point.status == "unknown":
        return "·"
    if point.latency_ms is None or point.latency_ms <= 0:
        return BARS[0]
    # The difference, because a quotient of tiny numbers can be 0.
    height = MIDDLE + round(2 * (math.log2(point.latency_ms) - math.log2(median_ms)))
    return BARS[min(max(height, 0), len(BARS) - 1)]
