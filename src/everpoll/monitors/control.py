"""Control: the memory of a service between two looks, stored as JSON in its row.

Promises: it is small (a few hundred bytes for a healthy service), and any worker can go on with it. Fields are only
ever added, each with a default, so that rows of earlier releases can be read; fields of later releases are ignored. A
field that cannot be read gets its default, and the other fields are kept. Everything in it is derived from the
definition, the looks and their times.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.definition import STALE_INTERVALS, Definition
from everpoll.monitors.report import Status
from everpoll.policy import BreakerPhase, BreakerState

Waits = Literal["first", "interval", "backoff", "breaker", "retry_after", "changed", "heartbeat", "paused", "resumed"]
"""What the next look waits for."""


class Streak(Struct, frozen=True, gc=False, omit_defaults=True):
    """The last looks at a service or a dependency, as far as they decide about incidents; `Streak()`: all is well."""

    bad: int = 0
    """Failed looks in a row."""
    good: int = 0
    """Good looks in a row, counted while an incident is open."""
    window: int = 0
    """The last looks as bits, the newest lowest, 1 for failed; only with `Alert(within=…)`."""
    since: float | None = None
    """When the first of the failed looks was."""
    is_unknown: bool = False
    """The last look was not conclusive."""
    incident: str | None = None
    """The id of the open incident."""


CALM = Streak()


class Control(Struct, frozen=True, gc=False, omit_defaults=True):
    """The memory of one service. `register` makes the first one, `decide` each further one."""

    version: int = 1
    born: int = 0
    """When the service was registered, in seconds since the epoch: part of the ids of its incidents."""
    fetch: str = ""
    """`Definition.fetch` at the last decision: if the definition has another one, breaker and backoff start over."""
    every_s: float = 0.0
    """The interval at the last decision: if the definition has another one, the due time changes."""
    due_at: float = 0.0
    """When the next look is due."""
    waits: Waits = "first"
    origin_at: float | None = None
    """The instant from which the next interval counts: the due time of the last look, or its start if it had none."""
    looked_at: float | None = None
    """When the last look began."""
    judged_at: float | None = None
    """When the last conclusive look ended."""
    answered_at: float | None = None
    """When the last look that got an answer ended."""
    status: Status = Status.UNKNOWN
    changed_at: float | None = None
    """When the status last changed."""
    error: str | None = None
    http_status: int | None = None
    latency_ms: float | None = None
    warnings: tuple[str, ...] = ()
    """The first MAX_WARNINGS warnings of the last conclusive look."""
    failures: int = 0
    """Looks in a row that got no answer."""
    failed_at: float | None = None
    """When the last of these looks ended."""
    opened_at: float | None = None
    """When the breaker opened, or its last probe failed; None: it is closed."""
    not_before: float | None = None
    """The earliest next look that a Retry-After allows."""
    body: str | None = None
    edition: int = 0
    """A number that grows with each change of the known dependencies: a copy with the same number is current."""
    streak: Streak = CALM
    dependencies: dict[str, Streak] = {}
    """The streaks of dependencies that failed recently; all others are well or unknown."""
    incidents: int = 0
    """How many incidents were opened."""
    seq: int = 0
    """The number of the last durable event."""
    asks: int = 0
    """The value of `Assignment.asks` that the last forced look answered."""
    beats: int = 0
    """The value of `Assignment.beats` up to which heartbeats are counted."""
    paused_at: float | None = None
    """When a worker first found the service paused; None: it is not paused."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Control)


def write(control: Control) -> str:
    """Return the JSON of a memory."""
    return _encoder.encode(control).decode()


def read(memory: str | bytes) -> Control:
    """Read a memory; a field that cannot be read gets its default."""
    try:
        return _decoder.decode(memory)
    except msgspec.DecodeError:
        return _salvaged(memory)


def _salvaged(memory: str | bytes) -> Control:
    try:
        fields = msgspec.json.decode(memory)
    except msgspec.DecodeError:
        return Control()
    control = Control()
    for name, value in fields.items() if isinstance(fields, dict) else ():
        try:
            one: Any = msgspec.convert({name: value}, Control)
        except msgspec.ValidationError:
            continue
        if name in Control.__struct_fields__:
            control = replace(control, **{name: getattr(one, name)})
    return control


def breaker_state(control: Control, probe_at: float | None = None) -> BreakerState:
    """Return the breaker's part of the memory."""
    return BreakerState(control.failures, control.opened_at, probe_at)


def breaker_phase(definition: Definition, control: Control, now: float) -> BreakerPhase:
    """Return the phase of the breaker at that instant."""
    if definition.breaker is None or control.fetch != definition.fetch:
        return BreakerPhase.CLOSED
    return definition.breaker.phase(breaker_state(control), now)


def stale_at(definition: Definition, control: Control) -> float | None:
    """Return when the stored status becomes stale if no further look comes; None if there is no status yet.

    A wait that is longer on purpose (an open breaker, a backoff, a Retry-After) does not make the status stale.
    """
    if control.judged_at is None:
        return None
    expected_at = control.due_at - definition.every_s if control.status is not Status.UNKNOWN else control.judged_at
    return max(control.judged_at, expected_at) + STALE_INTERVALS * definition.every_s


def shown_status(
    definition: Definition, control: Control, now: float, *, is_paused: bool = False
) -> Status | Literal["stale", "paused"]:
    """Return the status that is shown at that instant."""
    if is_paused:
        return "paused"
    turns_at = stale_at(definition, control)
    return "stale" if turns_at is not None and now > turns_at else control.status


def reports_stale_at(definition: Definition, control: Control) -> float | None:
    """Return when the service's report on its dependencies becomes stale; None: no answer ever came."""
    return None if control.answered_at is None else control.answered_at + STALE_INTERVALS * definition.every_s


def are_reports_stale(definition: Definition, control: Control, now: float) -> bool:
    """Return True if the service's report on its dependencies is stale: no answer came for three intervals."""
    turns_at = reports_stale_at(definition, control)
    return turns_at is None or now > turns_at
