"""Uptime: which share of the time that was looked at a service was up or degraded.

Time without looks, and time in which looks could tell nothing (unknown), is not downtime: a database of ours that was
away, or a broken line of ours, must not count against a service. It lowers `covered` instead, which stands beside it.

Promises: the percentage is rounded down, so 100 means that no look found the service down. Never counts unknown time.
"""

from dataclasses import dataclass

from everpoll.policy.rollup import Availability

_PERCENT_PARTS = 1_000_000
_SHARE_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class Uptime:
    """Uptime over a range."""

    percent: float | None
    """0 to 100, rounded down to four decimals; None where nothing is known."""
    covered: float
    """The share of the range that looks tell something about: 0 to 1, rounded down to four decimals."""


def uptime_of(availability: Availability, range_ms: int) -> Uptime:
    """Uptime from the figures of a range of this length; a rollup has them."""
    healthy_ms = availability.up_ms + availability.degraded_ms
    known_ms = healthy_ms + availability.down_ms
    percent = None if known_ms <= 0 else healthy_ms * _PERCENT_PARTS // known_ms * 100 / _PERCENT_PARTS
    # The last look of a range reaches beyond its end, so that the sum can exceed its length.
    covered = min(_SHARE_PARTS, known_ms * _SHARE_PARTS // range_ms) / _SHARE_PARTS if range_ms > 0 else 0.0
    return Uptime(percent, covered)
