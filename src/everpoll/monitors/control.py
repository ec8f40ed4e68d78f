"""Control: what a service's row remembers between two looks, as the JSON of its memory.

Promises: it is small (a few hundred bytes for a healthy service) and survives restarts and moves between workers.
Fields are only ever added, each with a default, so that rows of earlier releases are understood; fields of later
releases are ignored. A field that cannot be read falls back to its default and costs no other field.
Everything in it follows from the definition, the looks and their times.
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
    """The last looks at one thing, as far as an incident depends on them; `Streak()`: all is well."""

    bad: int = 0
    """Failed looks in a row."""
    good: int = 0
    """Good looks in a row, counted while an incident is open."""
    window: int = 0
    """The last looks as bits, the newest lowest, 1 for failed; only for X of Y."""
    since: float | None = None
    """When the first of the failed looks was."""
    is_unknown: bool = False
    """The last look said nothing about it."""
    incident: str | None = None
    """The id of the open incident."""


CALM = Streak()


class Control(Struct, frozen=True, gc=False, omit_defaults=True):
    """The memory of one service. `register` makes the first one, `decide` each further one."""

    version: int = 1
    born: int = 0
    """When the service was registered, in seconds since the epoch: part of the ids of its incidents."""
    fetch: str = ""
    """Of the definition that the last decision was made for …"""
    every_s: float = 0.0
    """… and its interval: a definition that differs starts over, or has another due time."""
    due_at: float = 0.0
    """When the next look is due."""
    waits: Waits = "first"
    slot_at: float | None = None
    """What the last look counts from: its due time, or its start where it had none."""
    looked_at: float | None = None
    """When the last look began."""
    judged_at: float | None = None
    """When the last look ended that said anything about the service."""
    answered_at: float | None = None
    """When the last look ended that got an answer."""
    status: Status = Status.UNKNOWN
    changed_at: float | None = None
    """When the status last changed."""
    error: str | None = None
    http_status: int | None = None
    latency_ms: float | None = None
    warnings: tuple[str, ...] = ()
    """Of the last look that said anything; the first MAX_WARNINGS."""
    failures: int = 0
    """Looks in a row that got no answer."""
    failed_at: float | None = None
    """When the last of them ended."""
    opened_at: float | None = None
    """When the breaker opened, or its last probe failed; None: it is closed."""
    not_before: float | None = None
    """What a Retry-After allows."""
    body: str | None = None
    edition: int = 0
    """Counts changes of the known dependencies: a copy of them with the same number is current."""
    streak: Streak = CALM
    dependencies: dict[str, Streak] = {}
    """Those that failed lately; all others are well, or not known to be failed."""
    incidents: int = 0
    """How many were opened."""
    seq: int = 0
    """The number of the last durable event."""
    asks: int = 0
    """Of the looks that callers asked for, how many were asked for before the last look …"""
    beats: int = 0
    """… and of the heartbeats, how many were counted."""
    paused_at: float | None = None
    """When a worker first found it paused; None: it is looked at."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Control)


def write(control: Control) -> str:
    """Return the JSON of a memory."""
    return _encoder.encode(control).decode()


def read(memory: str | bytes) -> Control:
    """Read a memory; what is not readable in it falls back to its default."""
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
    """Return when the stored status turns stale, if no look comes before; None while there is none to turn stale.

    Looks that are far apart on purpose (an open breaker, a backoff, a Retry-After) make nothing stale by themselves.
    """
    if control.judged_at is None:
        return None
    expected_at = control.due_at - definition.every_s if control.status is not Status.UNKNOWN else control.judged_at
    return max(control.judged_at, expected_at) + STALE_INTERVALS * definition.every_s


def shown_status(
    definition: Definition, control: Control, now: float, *, is_paused: bool = False
) -> Status | Literal["stale", "paused"]:
    """Return the status of the service as it is shown at that instant."""
    if is_paused:
        return "paused"
    turns_at = stale_at(definition, control)
    return "stale" if turns_at is not None and now > turns_at else control.status


def reports_stale_at(definition: Definition, control: Control) -> float | None:
    """Return when what the service said about its dependencies turns too old; None: no answer ever came."""
    return None if control.answered_at is None else control.answered_at + STALE_INTERVALS * definition.every_s


def are_reports_stale(definition: Definition, control: Control, now: float) -> bool:
    """Return True if the last report on the service's dependencies is too old: no answer for three intervals."""
    turns_at = reports_stale_at(definition, control)
    return turns_at is None or now > turns_at
