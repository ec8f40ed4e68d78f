"""The clock of this store.

Due times, and everything that people are shown, are **wall clock**: "at nine" means nine, also after a reboot. A step
of the clock moves what still waits; what once was due stays due. Nothing else depends on it: workers are declared dead
by other workers, by the steady clock of the watching worker (`policy/liveness.py`), and handlers past their deadline
are named by their own worker.
"""

import time

from everpoll.policy import Clock


class Instants:
    """The present, in the unit of the columns; a clock given takes the place of the machine's."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    def wall_us(self) -> int:
        """Return microseconds since the epoch."""
        return time.time_ns() // 1_000 if self._clock is None else round(self._clock.wall() * 1e6)


def microseconds(duration_s: float) -> int:
    """Return a duration in the unit of the columns, at most a thousand years."""
    return round(min(duration_s, 31_536_000_000.0) * 1e6)
