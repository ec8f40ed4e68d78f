"""Earlier runs of a watch, for a learned cadence: when each ended, and which progress it reported.

Promises: pure. Newer runs weigh more. If the newest runs clearly take more or less time than the older ones, the older
ones are ignored.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from everpoll.policy.durations import LONGEST_S

HALF_LIFE = 60
"""A run weighs half as much as one that is this many runs newer."""
NEWEST = 6
"""At least this many runs must differ from the older ones before those are ignored …"""
ERRORS_APART = 4.0
"""… by this many standard errors of the log duration."""

Mark = tuple[float, float]
"""A share of progress, and the seconds since the start at which a look first saw it."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """When an earlier run ended, as its looks saw it, in seconds since its start."""

    running_s: float
    """When a look last saw the operation running."""
    ended_s: float
    """When a look first saw that it had ended; infinity: the run timed out or was canceled."""
    progress: tuple[Mark, ...] = ()
    """What the remote reported: the first (share, seconds since the start) in each tenth."""

    @property
    def middle_s(self) -> float:
        """One number for its end: the middle of both; for a run that was given up, how long it ran at least."""
        return self.running_s if self.ended_s >= LONGEST_S else (self.running_s + self.ended_s) / 2


def weighted(runs: Sequence[PastRun]) -> list[tuple[PastRun, float]]:
    """Return runs, newest first, with their weights; if the newest ones clearly differ from the rest, only those."""
    return [(run, 0.5 ** (age / HALF_LIFE)) for age, run in enumerate(runs[: _newest_alike(runs)])]


def _newest_alike(runs: Sequence[PastRun]) -> int:
    """Return how many of the newest runs have alike durations: all, unless the durations have changed."""
    logs = [math.log(max(run.middle_s, 0.001)) for run in runs]
    count, sums, squares = len(logs), [0.0, *accumulate(logs)], sum(one * one for one in logs)
    best, apart = count, ERRORS_APART
    for newest in range(NEWEST, count - NEWEST + 1):
        rest = count - newest
        mean, other = sums[newest] / newest, (sums[count] - sums[newest]) / rest
        within = max(squares - newest * mean * mean - rest * other * other, 0.0) / (count - 2)
        error = math.sqrt((within + 1e-4) * (1 / newest + 1 / rest))
        if abs(mean - other) / error > apart:
            best, apart = newest, abs(mean - other) / error
    return best


def tenth(share: float) -> int:
    """Return the tenth, from 0 to 9, in which this share of progress lies."""
    return min(9, int(share * 10))


def is_usable(mark: Mark) -> bool:
    """Return True if a mark can be learned from: remotes and hand-edited rows may report anything."""
    share, at_s = mark
    return 0 < share <= 1 and 0 < at_s <= LONGEST_S
