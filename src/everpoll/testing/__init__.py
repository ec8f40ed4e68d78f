"""The public test kit: what everpoll's own tests use, for yours.

`VirtualClock` lets hours pass in no time; `drain(app)` runs what is due until nothing is.
"""

from everpoll.errors import NothingLeftToWait
from everpoll.testing.clock import VirtualClock
from everpoll.testing.drain import drain

__all__ = ["NothingLeftToWait", "VirtualClock", "drain"]
