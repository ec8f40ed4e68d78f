"""The public test kit: what everpoll's own tests use, for yours.

`VirtualClock` lets hours pass in no time; `drain(app)` runs what is due until nothing is.
"""

from everpoll.errors import NothingLeftToWait
from everpoll.testing.clock import VirtualClock
from everpoll.testing.drain import drain
from everpoll.testing.explore import BrokenPromise, Exploration, World, explore
from everpoll.testing.points import crash_point
from everpoll.testing.remote import RemoteCall, ScriptedRemote
from everpoll.testing.timeline import Moment, Timeline

__all__ = [
    "BrokenPromise",
    "Exploration",
    "Moment",
    "NothingLeftToWait",
    "RemoteCall",
    "ScriptedRemote",
    "Timeline",
    "VirtualClock",
    "World",
    "crash_point",
    "drain",
    "explore",
]
