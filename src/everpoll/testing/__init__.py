"""The public test kit: what everpoll's own tests use, for yours.

`VirtualClock` lets hours pass in no time; `drain(app)` runs what is due until nothing is. `in_memory(app)` and
`inline(app)` give an app a store in memory; `enqueued` and `assert_enqueued` show what was enqueued.
"""

from everpoll.errors import NothingLeftToWait
from everpoll.testing.clock import VirtualClock
from everpoll.testing.drain import drain
from everpoll.testing.enqueued import EnqueuedCall, assert_enqueued, enqueued
from everpoll.testing.explore import BrokenPromise, Exploration, World, explore
from everpoll.testing.in_memory import in_memory, inline
from everpoll.testing.points import crash_point
from everpoll.testing.remote import RemoteCall, ScriptedRemote
from everpoll.testing.timeline import Moment, Timeline

__all__ = [
    "BrokenPromise",
    "EnqueuedCall",
    "Exploration",
    "Moment",
    "NothingLeftToWait",
    "RemoteCall",
    "ScriptedRemote",
    "Timeline",
    "VirtualClock",
    "World",
    "assert_enqueued",
    "crash_point",
    "drain",
    "enqueued",
    "explore",
    "in_memory",
    "inline",
]
