"""Uptime: the share of the observed time in which a service was up or degraded.

Time without looks, and time in which looks could not tell (unknown), is not downtime: an outage of our own database or
network must not count against a service. It lowers `covered` instead, the share of the time that was observed.

A look stands for the time until the next one is due. The part of that in the future (`Ahead`) is not covered, but
counts for the percentage: a service that has just gone down must not show 100.

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
    """0 to 100, rounded down to four decimals; None if nothing is known."""
    covered: float
    """The share of the range for which looks know the status: 0 to 1, rounded down to four decimals."""


class Ahead(NamedTuple):
    """The part of the last look's time that lies in the future, and the status that this look found."""

    status: HealthWord = "unknown"
    ms: int = 0


NOTHING_AHEAD = Ahead()


def ahead_of(status: HealthWord, at: float, until: float, now: float) -> Ahead:
    """Return the future part of the time of a look at `at` that stands for the time until `until`."""
    return Ahead(status, max(0, round((until - max(at, now)) * 1000)))


def uptime_of(availability: Availability, range_ms: int, ahead: Ahead = NOTHING_AHEAD) -> Uptime:
    """Return the uptime in a range of this length, from its figures, such as a rollup; `ahead` is of its last look."""
    healthy_ms = availability.up_ms + availability.degraded_ms
    known_ms = healthy_ms + availability.down_ms
    percent = None if known_ms <= 0 else healthy_ms * _PERCENT_PARTS // known_ms * 100 / _PERCENT_PARTS
    # The sum can exceed the range: a look may come before it was due, and the last one may reach beyond the end.
    covered_ms = max(0, known_ms - (0 if ahead.status == "unknown" else ahead.ms))
    covered = min(_SHARE_PARTS, covered_ms * _SHARE_PARTS // range_ms) / _SHARE_PARTS if range_ms > 0 else 0.0
    return Uptime(percent, covered)
