"""Assignment: the arguments of a service's task, which operators and callers write and no look changes.

    args      the assignment: the definition, and what was asked of it (look now, mute, pause, a heartbeat that came)
    memory    the control state, which looks write

Promises: a change of one field keeps the others: it is read, changed and written back only if no other change came in
between (`Revision.expects`).
"""

import msgspec
from msgspec import Struct

from everpoll.monitors.definition import Definition
from everpoll.monitors.kinds import CHECK_KIND
from everpoll.monitors.pause import ServicePause
from everpoll.monitors.report import Status

KIND = CHECK_KIND
CHECK = "everpoll.check"
QUEUE = "everpoll.checks"


class Assignment(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a worker is to look at, and what was asked of it since."""

    definition: Definition
    asks: int = 0
    """How often callers asked for a look; counted, since the clocks of callers and of the store differ."""
    beats: int = 0
    """How many heartbeats came …"""
    beat_status: Status = Status.UP
    """… and what the last one said."""
    muted_until: float | None = None
    paused: ServicePause | None = None
    """Since when, why and by which actor it is not looked at; None: it is looked at."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Assignment)


def write(assignment: Assignment) -> str:
    """Return the JSON of an assignment."""
    return _encoder.encode(assignment).decode()


def read(args: str | bytes) -> Assignment:
    """Read an assignment; fields of later releases are ignored."""
    return _decoder.decode(args)
