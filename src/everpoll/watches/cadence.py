"""Cadences: when to look next, from what this run and earlier ones have shown.

A cadence is a pure object: history in, delay out. `Backoff` is the first; `Learned` puts its looks where earlier runs
have ended. Never looks at a clock: the history says how much time has passed.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from everpoll.errors import BadInput
from everpoll.policy import Backoff, Duration, Rng, seconds, shown, whole_number

NEAREST = 3
"""Runs that make a hazard; fewer are an anecdote."""


@dataclass(frozen=True, slots=True)
class History:
    """What a cadence may know."""

    looks: int = 0
    """Looks of this run so far."""
    elapsed_s: float = 0.0
    """Since the start of this run."""
    durations_s: tuple[float, ...] = ()
    """How long earlier runs of this watch took, newest first: the middle between the look that saw the end and the one
    before it."""


@runtime_checkable
class Cadence(Protocol):
    """Anything that says how long to wait until the next look."""

    def next_s(self, history: History, rng: Rng) -> float:
        """Seconds until the next look."""
        ...


@dataclass(frozen=True, slots=True)
class Growing:
    """A backoff as a cadence: the nth wait of the run is the nth of the backoff."""

    backoff: Backoff

    def next_s(self, history: History, rng: Rng) -> float:
        """See `Cadence`."""
        return self.backoff.delay(history.looks + 1, rng)


@dataclass(frozen=True, slots=True, init=False)
class Learned:
    """Looks where earlier runs ended: `Learned(Backoff("2s", cap="30s"))`, which also is the cadence until it knows.

    A look costs as much as `look_worth` of waiting. With a hazard h (the share of runs that end in the next second, of
    those that took so long), a gap g costs one look, and h * g of the runs wait g / 2 on average: the sum of both is
    least at g = sqrt(2 * look_worth / h). Where many runs end, looks are close together; where few do, they are rare.
    Never less than `least`, nor more than the cap of the fallback.
    """

    fallback: Backoff
    look_worth_s: float
    least_s: float
    needed: int
    """Runs that it wants to have seen before it trusts them."""

    def __init__(
        self, fallback: Backoff, look_worth: Duration = "1.5s", least: Duration = "1s", needed: int = 20
    ) -> None:
        if not isinstance(fallback, Backoff):
            raise BadInput(f'Learned({shown(fallback)}): write Learned(Backoff("2s", cap="30s"))')
        put = object.__setattr__
        put(self, "fallback", fallback)
        put(self, "look_worth_s", seconds(look_worth, name="look_worth", positive=True))
        put(self, "least_s", seconds(least, name="least", positive=True))
        put(self, "needed", whole_number(needed, name="needed", at_least=NEAREST, accepted="how many runs it wants"))

    def next_s(self, history: History, rng: Rng) -> float:
        """See `Cadence`."""
        longer = sorted(one for one in history.durations_s if one > history.elapsed_s)
        if len(history.durations_s) < self.needed or len(longer) < NEAREST:
            return self.fallback.delay(history.looks + 1, rng)
        # The hazard, from the tenth of them that would end next.
        count = max(NEAREST, len(longer) // 10)
        hazard = count / (len(longer) * (longer[count - 1] - history.elapsed_s))
        return min(self.fallback.cap_s, max(self.least_s, math.sqrt(2 * self.look_worth_s / hazard)))


def cadence_of(every: object) -> Cadence | None:
    """The cadence that `every=` means; None: it is none."""
    if isinstance(every, Backoff):
        return Growing(every)
    if isinstance(every, Cadence):
        return every
    if isinstance(every, (str, int, float)) and not isinstance(every, bool):
        return Growing(Backoff(every, factor=1.0, jitter=0.1))
    return None
