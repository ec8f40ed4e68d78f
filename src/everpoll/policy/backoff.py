"""Backoff: how long the nth wait lasts.

Promises: wait n lasts initial * factor ** max(0, n - steady), at most the cap; it never shrinks as n grows, and never
overflows. Jitter changes the capped wait, and does not affect the next one. Never counts: the caller passes n.

        steady=0   2 4 8 …    growth begins with the first wait (initial="1s")
        steady=1   1 2 4 …    the first wait is the initial one
        steady=2   1 1 2 …    the first two are
"""

import math
from dataclasses import dataclass

from everpoll.errors import BadDuration
from everpoll.policy.durations import LONGEST_S, Duration, human, seconds
from everpoll.policy.figures import number, shown, whole_number
from everpoll.policy.jitter import Rng, spread, spread_up


def growth(factor: float, exponent: float) -> float:
    """Return factor ** exponent for a factor of at least 1; infinity if that exceeds the range of floats."""
    # 1 ** n is 1 even for an n that is too large for a float, for which pow raises OverflowError.
    if factor == 1:
        return 1.0
    try:
        return math.pow(factor, exponent)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Backoff:
    """Waits that grow: `Backoff("1s", factor=2, cap="5m", jitter=0.1)`; without a cap they grow up to ten years."""

    initial_s: float
    factor: float
    cap_s: float
    jitter: float
    steady: int

    def __init__(
        self,
        initial: Duration,
        factor: float = 2.0,
        cap: Duration | None = None,
        jitter: float = 0.1,
        steady: int = 1,
    ) -> None:
        put = object.__setattr__
        put(self, "initial_s", seconds(initial, name="initial", positive=True))
        put(self, "factor", number(factor, name="factor", at_least=1, accepted="1 for even waits, 2 to double each"))
        put(self, "cap_s", LONGEST_S if cap is None else seconds(cap, name="cap", positive=True))
        put(self, "jitter", number(jitter, name="jitter", at_least=0, at_most=1, accepted="0 for none, up to 1"))
        put(
            self,
            "steady",
            whole_number(steady, name="steady", at_least=0, accepted="how many waits come before growth"),
        )
        if self.cap_s < self.initial_s:
            raise BadDuration(
                f"cap={shown(cap)}: shorter than initial={shown(initial)}; write a cap of at least the initial wait"
            )

    def __repr__(self) -> str:
        cap = None if self.cap_s == LONGEST_S else human(self.cap_s)
        return (
            f"Backoff({human(self.initial_s)!r}, factor={self.factor:g}, cap={cap!r}, "
            f"jitter={self.jitter:g}, steady={self.steady})"
        )

    def wait_s(self, n: int) -> float:
        """Return how long wait n lasts, counted from 1, without jitter; before any wait it is the initial one."""
        return min(self.initial_s * growth(self.factor, max(0, n - self.steady)), self.cap_s)

    def delay(self, n: int, rng: Rng | None = None, *, at_least_s: float = 0.0, at_most_s: float = math.inf) -> float:
        """Return wait n with jitter, at least a server's Retry-After, and at most the time until the deadline.

        The cap does not limit `at_least_s`, because calling earlier gets a client banned; `at_most_s` limits
        everything. `rng` is called exactly once; without it there is no jitter.
        """
        wait_s = self.wait_s(n)
        delay_s = max(wait_s, at_least_s) if rng is None else self._spread(wait_s, at_least_s, rng.random())
        return max(0.0, min(delay_s, LONGEST_S, at_most_s))

    def _spread(self, wait_s: float, at_least_s: float, chance: float) -> float:
        delay_s = spread(wait_s, self.jitter, chance)
        # Delays below the floor are spread above it: otherwise all clients would call at once, exactly at the floor.
        return spread_up(at_least_s, self.jitter, chance) if delay_s < at_least_s else delay_s
