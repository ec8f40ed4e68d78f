"""For how long the database has not heard of the workers of this process. Who was cut off itself buries nobody.

What cuts one off (a database that is away, a file that somebody keeps locked, a machine that is paused) cuts off the
others as well: every lease runs out, and whoever is back first would give up for dead who is as alive as itself. So the
first beat after a long silence rescues nothing. Whoever has not beaten by the second is dead indeed.
"""

import time
from collections.abc import Callable

# Workers beat three times a lease. In an outage that all of them share, one's lease runs out when another has been
# silent for two thirds of its own at least.
CUT_OFF_SHARE = 0.5


class Silence:
    """By incarnation. Called from the heartbeat's thread and from the event loop's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_at: dict[int, float] = {}

    def heard(self, incarnation: int) -> None:
        """The database has just heard of this worker."""
        self._heard_at[incarnation] = self._clock()

    def forget(self, incarnation: int) -> None:
        """It has signed off."""
        self._heard_at.pop(incarnation, None)

    def was_cut_off(self, incarnation: int, lease_s: float) -> bool:
        """Whether it has been silent for too long; never for one that this process did not sign on."""
        now = self._clock()
        return now - self._heard_at.get(incarnation, now) > lease_s * CUT_OFF_SHARE
