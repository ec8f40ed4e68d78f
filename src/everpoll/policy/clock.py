"""Clock: the two times that everpoll reads, behind one protocol that callers implement.

Promises: `now` only ever goes forward and is what decisions are made with; `wall` is what people are shown, and may
jump. Never read in this room: policies take `now` as a number.
"""

from typing import Protocol


class Clock(Protocol):
    """A real clock, or a virtual one in tests."""

    def now(self) -> float:
        """Monotonic seconds from an arbitrary start: decides."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch: for display only."""
        ...
