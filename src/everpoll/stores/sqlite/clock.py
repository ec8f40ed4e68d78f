"""The clock of this store: the wall clock.

Due times, and all times that are shown, are wall clock times: "at nine" means nine, also after a reboot. A step of the
clock changes how long waiting tasks still wait; a task that was due stays due. Nothing else depends on it: other
workers declare a worker dead by their own monotonic clocks (`policy/liveness.py`), and each worker reports its own
overdue handlers.
"""

import time

from everpoll.policy import Clock


class Instants:
    """The present time, in the unit of the columns; `clock` replaces the machine's clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    def wall_us(self) -> int:
        """Return microseconds since the epoch."""
        return time.time_ns() // 1_000 if self._clock is None else round(self._clock.wall() * 1e6)


def microseconds(duration_s: float) -> int:
    """Return a duration in the unit of the columns, at most a thousand years."""
    return round(min(duration_s, 31_536_000_000.0) * 1e6)
