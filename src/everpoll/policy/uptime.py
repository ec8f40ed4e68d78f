"""Uptime: which share of the time that was looked at a service was up or degraded.

Time without looks, and time in which looks could tell nothing (unknown), is not downtime: a database of ours that was
away, or a broken line of ours, must not count against a service. It lowers `covered` instead, which stands beside it.

A look stands for the time until the next one is due. What of that is still to come is not covered (`Ahead`). It counts
for the percentage all the same: a service that has just gone down must not show 100.

Promises: the percentage is rounded down, so 100 means that no look found the service down. Never counts unknown time.
"""

from dataclasses import dataclass
from typing import NamedTuple

from everpoll.policy.rollup import Availability, HealthWord

_PERCENT_PARTS = 1_000_000
_SHARE_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class Uptime:
    """Uptime over a range."""

    percent: float | None
    """0 to 100, rounded down to four decimals; None where nothing is known."""
    covered: float
    """The share of the range that looks tell something about: 0 to 1, rounded down to four decimals."""


class Ahead(NamedTuple):
    """The part of the last look's time that is still to come, and what that look found."""

    status: HealthWord = "unknown"
    ms: int = 0


NOTHING_AHEAD = Ahead()


def ahead_of(status: HealthWord, at: float, until: float, now: float) -> Ahead:
    """Return what of a look at `at` that stands until `until` is still to come."""
    return Ahead(status, max(0, round((until - max(at, now)) * 1000)))


def uptime_of(availability: Availability, range_ms: int, ahead: Ahead = NOTHING_AHEAD) -> Uptime:
    """Return the uptime from the figures of a range of this length that has the last look in it; a rollup has them."""
    healthy_ms = availability.up_ms + availability.degraded_ms
    known_ms = healthy_ms + availability.down_ms
    percent = None if known_ms <= 0 else healthy_ms * _PERCENT_PARTS // known_ms * 100 / _PERCENT_PARTS
    # A look that came before it was due, and one that reaches beyond the end of the range, make the sum exceed it.
    covered_ms = max(0, known_ms - (0 if ahead.status == "unknown" else ahead.ms))
    covered = min(_SHARE_PARTS, covered_ms * _SHARE_PARTS // range_ms) / _SHARE_PARTS if range_ms > 0 else 0.0
    return Uptime(percent, covered)
