"""Earlier runs of a watch, as a learned cadence knows them: when each ended, and which progress it reported.

Promises: pure. Newer runs weigh more; if the newest runs clearly take another time than the older ones, the older ones
are forgotten.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from everpoll.policy.durations import LONGEST_S

HALF_LIFE = 60
"""Runs after which a run counts half."""
NEWEST = 6
"""At least this many runs must differ from the older ones before those are forgotten …"""
ERRORS_APART = 4.0
"""… by this many standard errors of the log duration."""

Mark = tuple[float, float]
"""A share of progress, and the seconds since the start at which a look first saw it."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """When an earlier run ended, as far as its looks can tell."""

    running_s: float
    """Since its start: the last look that saw it running."""
    ended_s: float
    """The first look that saw it ended; infinity: the run timed out or was canceled."""
    progress: tuple[Mark, ...] = ()
    """What the remote reported: the first (share, seconds since the start) in each tenth."""

    @property
    def middle_s(self) -> float:
        """Where it ended, as one number; for a run that was given up: how long it ran at least."""
        return self.running_s if self.ended_s >= LONGEST_S else (self.running_s + self.ended_s) / 2


def weighted(runs: Sequence[PastRun]) -> list[tuple[PastRun, float]]:
    """Return runs, newest first, with their weights; if the newest ones clearly differ from the rest, only those."""
    return [(run, 0.5 ** (age / HALF_LIFE)) for age, run in enumerate(runs[: _newest_alike(runs)])]


def _newest_alike(runs: Sequence[PastRun]) -> int:
    """Return how many of the newest runs belong together: all, unless the durations have changed."""
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
    """Return which tenth of the way this share lies in, from 0 to 9."""
    return min(9, int(share * 10))


def is_usable(mark: Mark) -> bool:
    """Return True if a mark can be learned from: remotes and hand-edited rows may report anything."""
    share, at_s = mark
    return 0 < share <= 1 and 0 < at_s <= LONGEST_S
