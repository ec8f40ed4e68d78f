"""Incident: one outage of a service or a dependency, from its opening to its close, and the notices about it.

    open ──delay over, not muted, no maintenance, no failed root──▶ alerted ──reminders──▶ …
      │                                                               │
      └── closed before it alerted: nothing is sent                   └── closed: "recovered" to those channels

An incident is a row that is due again: each step returns the notices to send now and the time of the next step. There
is also a step when the incident is acknowledged or closed; further steps do no harm.

Promises: at most one alert per incident and channel. A step that is repeated from the same memory returns the same
notices with the same ids. A failed root below the thing holds back only the first alert. A mute or a maintenance window
delays alerts and reminders. "recovered" is always sent to the channels that got an alert. This module sends nothing.
"""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert, Notice, NoticeKind, notice_id
from everpoll.monitors.maintenance import Window, maintained_until
from everpoll.monitors.report import Status
from everpoll.policy import shown

HELD_RECHECK_S = 30.0
"""How often an alert that is held back is tried again."""
IDLE_S = 3_600.0
"""When the next step comes if the incident waits only for its close."""
RECOVERED = "recovered"
"""The reason of an incident that good looks have closed."""
MAX_ROOTS = 10
MAX_BY_CHARS = 200

IncidentWaits = Literal["delay", "mute", "maintenance", "root", "reminder", "close", "nothing"]


class Incident(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory of one incident's row."""

    id: str
    service: str
    dependency: str | None = None
    """None: the service itself."""
    opened_at: float
    since: float
    """When the first of the failed looks was."""
    status: Status = Status.DOWN
    error: str | None = None
    alert: Alert
    sent: dict[str, float] = {}
    """The channels that were alerted, and when."""
    noticed_at: float | None = None
    """When the last alert or reminder was made."""
    reminders: int = 0
    held_by: tuple[str, ...] = ()
    """The failed roots that held the alert back."""
    acknowledged_at: float | None = None
    acknowledged_by: str | None = None
    closed_at: float | None = None
    closed_why: str | None = None
    waits: IncidentWaits = "delay"


class Situation(Struct, frozen=True, kw_only=True):
    """What decides, beside the incident itself, whether a step sends notices."""

    muted_until: float | None = None
    windows: tuple[Window, ...] = ()
    roots: tuple[str, ...] = ()
    """Failed things below this one that send their own alerts."""
    affected: tuple[str, ...] = ()
    """Failed services that depend on this thing; their alerts are held back because of it."""


class IncidentStep(NamedTuple):
    """The result of one step."""

    incident: Incident
    notices: tuple[Notice, ...] = ()
    next_at: float | None = None
    """None: the incident has ended."""


CALM_SITUATION = Situation()


def next_step(incident: Incident, now: float, situation: Situation = CALM_SITUATION) -> IncidentStep:
    """Return the notices to send about an incident now, and the time of the next step."""
    if incident.closed_at is not None:
        over = replace(incident, waits="nothing")
        return IncidentStep(over, tuple(_notice(incident, channel, "recovered", now) for channel in incident.sent))
    if incident.acknowledged_at is not None or not incident.alert.to:
        return IncidentStep(replace(incident, waits="close"), next_at=now + IDLE_S)
    due_at, waits = _due(incident)
    if due_at is None:
        return IncidentStep(replace(incident, waits="close"), next_at=now + IDLE_S)
    if now < due_at:
        return IncidentStep(replace(incident, waits=waits), next_at=due_at)
    quiet_until, quiet = _quiet_until(incident, situation, now)
    if quiet_until is not None:
        return IncidentStep(replace(incident, waits=quiet), next_at=quiet_until)
    if incident.noticed_at is not None:
        return _reminded(incident, now)
    if situation.roots:
        held = replace(incident, held_by=situation.roots[:MAX_ROOTS], waits="root")
        return IncidentStep(held, next_at=now + HELD_RECHECK_S)
    return _alerted(incident, now, situation)


def acknowledge(incident: Incident, by: Any, now: float) -> Incident:
    """Return the incident as acknowledged by an operator; the first acknowledgement stays."""
    if not isinstance(by, str) or not 1 <= len(by) <= MAX_BY_CHARS:
        raise BadInput(f"incident {incident.id}: by={shown(by)}: must be a name of 1 to {MAX_BY_CHARS} characters")
    if incident.acknowledged_at is not None or incident.closed_at is not None:
        return incident
    return replace(incident, acknowledged_at=now, acknowledged_by=by)


def close(incident: Incident, why: str, now: float) -> Incident:
    """Return the incident as closed; the first reason stays."""
    return incident if incident.closed_at is not None else replace(incident, closed_at=now, closed_why=why)


def _due(incident: Incident) -> tuple[float | None, IncidentWaits]:
    """Return when the alert, or the next reminder, is due."""
    if incident.noticed_at is None:
        return incident.opened_at + incident.alert.delay_s, "delay"
    if incident.alert.reminder_s is None:
        return None, "close"
    return incident.noticed_at + incident.alert.reminder_s, "reminder"


def _quiet_until(incident: Incident, situation: Situation, now: float) -> tuple[float | None, IncidentWaits]:
    if situation.muted_until is not None and situation.muted_until > now:
        return situation.muted_until, "mute"
    return maintained_until(situation.windows, incident.service, now), "maintenance"


def _alerted(incident: Incident, now: float, situation: Situation) -> IncidentStep:
    affected = situation.affected[:MAX_ROOTS]
    notices = tuple(replace(_notice(incident, to, "alert", now), affected=affected) for to in incident.alert.to)
    after = replace(incident, sent=dict.fromkeys(incident.alert.to, now), noticed_at=now)
    return _then(after, notices, now)


def _reminded(incident: Incident, now: float) -> IncidentStep:
    after = replace(incident, noticed_at=now, reminders=incident.reminders + 1)
    return _then(after, tuple(_notice(after, to, "reminder", now) for to in incident.sent), now)


def _then(incident: Incident, notices: tuple[Notice, ...], now: float) -> IncidentStep:
    due_at, waits = _due(incident)
    return IncidentStep(replace(incident, waits=waits), notices, now + IDLE_S if due_at is None else due_at)


def _notice(incident: Incident, channel: str, kind: NoticeKind, now: float) -> Notice:
    number = incident.reminders if kind == "reminder" else 0
    return Notice(
        id=notice_id(incident.id, channel, kind, number),
        incident=incident.id,
        channel=channel,
        kind=kind,
        at=now if incident.closed_at is None else incident.closed_at,
        service=incident.service,
        dependency=incident.dependency,
        since=incident.since,
        error=incident.error,
        held_by=incident.held_by,
        number=number,
        reason=None if incident.closed_why == RECOVERED else incident.closed_why,
    )


write = msgspec.json.Encoder().encode
read = msgspec.json.Decoder(Incident).decode
