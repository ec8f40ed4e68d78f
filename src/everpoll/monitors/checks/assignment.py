"""Assignment: the arguments of a service's task. Operators and callers write it; looks never change it.

    args      the assignment: the definition, and requests of operators and callers (look now, mute, pause, heartbeat)
    memory    the control state, which looks write

Promises: a change of one field keeps the other fields: the assignment is read, changed and written back only if no
other change came in between (`Revision.expects`).
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
    """The service that a worker looks at, and the requests of operators and callers."""

    definition: Definition
    asks: int = 0
    """How often callers asked for a look: a count, because the clocks of callers and of the store differ."""
    beats: int = 0
    """How many heartbeats have come."""
    beat_status: Status = Status.UP
    """The status in the last heartbeat."""
    muted_until: float | None = None
    paused: ServicePause | None = None
    """The pause of the service: since when, why and by which actor; None: it is not paused."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Assignment)


def write(assignment: Assignment) -> str:
    """Return the JSON of an assignment."""
    return _encoder.encode(assignment).decode()


def read(args: str | bytes) -> Assignment:
    """Read an assignment; fields of later releases are ignored."""
    return _decoder.decode(args)
