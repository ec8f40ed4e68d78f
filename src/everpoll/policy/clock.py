"""Clock: the two times that everpoll reads, behind one protocol that callers implement.

Promises: `now` never goes back, and decisions use it; `wall` is for display, and may jump. Never: a policy
reads a clock; it takes `now` as a number.
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
