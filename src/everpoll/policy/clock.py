"""Clock: the two times that everpoll reads, behind one protocol that callers implement.

Promises: `now` only ever goes forward and is what decisions are made with; `wall` is what people are shown, and may
jump. Never read in this room: policies take `now` as a number.
"""

from typing import Protocol


class Clock(Protocol):
    """A real clock, or a virtual one in tests."""

    def now(self) -> float:
        """Return monotonic seconds from an arbitrary start. Decisions use this time."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch, for display only."""
        ...
