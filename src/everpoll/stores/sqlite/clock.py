"""The two clocks of this store, and which one decides what.

- Due times, and everything that people are shown, are **wall clock**: "at nine" means nine, also after a reboot.
  A step of the clock moves what still waits; what once was due stays due.
- Worker leases and run deadlines are the host's **steady clock** (`time.monotonic`), which all processes of a machine
  share: a step of the wall clock neither kills a worker nor revives one. It stands still while the machine is
  suspended, so nobody is given up for dead because of a closed lid; a clock that goes on would bury everybody.
- A reboot sets the steady clock back. A beat that lies in its future is from before the reboot, its worker is dead;
  one that the new clock has already passed looks alive until its lease runs out, so for one lease at most.
- A process that was stopped (SIGSTOP, a debugger) longer than its lease is buried by the next beat of anybody else.
  When it goes on, its beat, its leases and its settlements find that out from the database. Where nobody else beats,
  nobody has taken anything from it, and its own beat simply extends its lease.
"""

import time

from everpoll.policy import Clock

REBOOT_SLACK_MS = 1_000
"""How far a beat may lie in the future: reading the clock and writing it are two moments, on several cores."""


class Instants:
    """The present, in the units of the columns; a clock given takes the place of the machine's."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    def wall_us(self) -> int:
        """Microseconds since the epoch."""
        return time.time_ns() // 1_000 if self._clock is None else round(self._clock.wall() * 1e6)

    def steady_ms(self) -> int:
        """Milliseconds of the steady clock."""
        return time.monotonic_ns() // 1_000_000 if self._clock is None else round(self._clock.now() * 1e3)


def microseconds(duration_s: float) -> int:
    """A duration in the unit of the columns, at most a thousand years."""
    return round(min(duration_s, 31_536_000_000.0) * 1e6)


def milliseconds(duration_s: float) -> int:
    """The same for the steady clock."""
    return microseconds(duration_s) // 1_000
