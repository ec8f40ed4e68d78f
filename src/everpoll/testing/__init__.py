"""The public test kit: what everpoll's own tests use, for yours. `VirtualClock` lets hours pass in no time."""

from everpoll.errors import NothingLeftToWait
from everpoll.testing.clock import VirtualClock

__all__ = ["NothingLeftToWait", "VirtualClock"]
