"""Cadences: when to look next, from what this run and earlier ones have shown.

A cadence is a pure object: history in, delay out. `Backoff` is the first; `Learned` puts its looks where earlier runs
have ended. Never looks at a clock: the history says how much time has passed.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from everpoll.policy import Backoff, Duration, Rng, seconds


@dataclass(frozen=True, slots=True)
class History:
    """What a cadence may know."""

    looks: int = 0
    """Looks of this run so far."""
    elapsed_s: float = 0.0
    """Since the start of this run."""
    durations_s: tuple[float, ...] = ()
    """How long earlier runs of this watch took until they were seen to have ended; newest first."""


@runtime_checkable
class Cadence(Protocol):
    """Anything that says how long to wait until the next look."""

    def next_s(self, history: History, rng: Rng) -> float:
        """Seconds until the next look."""
        ...


@dataclass(frozen=True, slots=True)
class Growing:
    """A backoff as a cadence: the nth wait of the run is the nth of the backoff (B4)."""

    backoff: Backoff

    def next_s(self, history: History, rng: Rng) -> float:
        """See `Cadence`."""
        return self.backoff.delay(history.looks + 1, rng)


@dataclass(frozen=True, slots=True, init=False)
class Learned:
    """Looks where earlier runs ended: `Learned(Backoff("2s", cap="30s"))`, which also is the cadence until it knows.

    The next look comes when a share `aim` of those earlier runs that took longer than this one so far had ended. Where
    most runs end, looks are close together; where few do, they are rare. It never waits less than `least`, nor longer
    than the backoff's cap.
    """

    fallback: Backoff
    aim: float
    least_s: float
    needed: int = field(default=20)
    """Runs that it wants to have seen before it trusts them."""

    def __init__(self, fallback: Backoff, aim: float = 0.2, least: Duration = "1s", needed: int = 20) -> None:
        object.__setattr__(self, "fallback", fallback)
        object.__setattr__(self, "aim", min(1.0, max(0.01, aim)))
        object.__setattr__(self, "least_s", seconds(least, name="least", positive=True))
        object.__setattr__(self, "needed", max(1, needed))

    def next_s(self, history: History, rng: Rng) -> float:
        """See `Cadence`."""
        longer = sorted(one for one in history.durations_s if one > history.elapsed_s)
        if len(history.durations_s) < self.needed or not longer:
            return self.fallback.delay(history.looks + 1, rng)
        until_s = longer[min(len(longer) - 1, int(len(longer) * self.aim))] - history.elapsed_s
        return min(self.fallback.cap_s, max(self.least_s, until_s))


def cadence_of(every: object) -> Cadence | None:
    """The cadence that `every=` means; None: it is none."""
    if isinstance(every, Backoff):
        return Growing(every)
    if isinstance(every, Cadence):
        return every
    if isinstance(every, (str, int, float)) and not isinstance(every, bool):
        return Growing(Backoff(every, factor=1.0, jitter=0.1))
    return None
