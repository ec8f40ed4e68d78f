"""Explains the state of a service: since when, what the next look waits for, and which alerts are sent or held back.

Pure: the records of one moment go in, sentences come out. It never guesses: each sentence follows from a record. No
sentence contains a header's value, a password or a query.
"""

from collections.abc import Mapping

from msgspec import Struct

from everpoll.engine.why import Why
from everpoll.monitors.control import Control, breaker_phase, shown_status
from everpoll.monitors.definition import Definition
from everpoll.monitors.incident import CALM_SITUATION, Incident, Situation
from everpoll.monitors.maintenance import maintained_until
from everpoll.monitors.next_look import look_due_at
from everpoll.monitors.pause import ServicePause
from everpoll.monitors.report import Status
from everpoll.monitors.targets import shown_target
from everpoll.policy import BreakerPhase, human

OVERDUE_S = 10.0
"""A look that has been due for longer than this is overdue."""
PAUSED = "no look is made and no heartbeat counts until it is resumed; this time is neither uptime nor downtime"


class ServiceSituation(Struct, frozen=True, kw_only=True):
    """Records about a service, in addition to its row."""

    incidents: tuple[Incident, ...] = ()
    """The open incidents of the service and of its dependencies."""
    situation: Situation = CALM_SITUATION
    waits_for_host: int | None = None
    """How many looks wait for a slot of its host, if its own look is one of them."""
    per_host: int = 5
    is_worker_alive: bool = True
    warnings: tuple[str, ...] = ()
    troubled: tuple[str, ...] = ()
    """The dependencies that it reports as down or degraded, in words."""
    pause: ServicePause | None = None
    undelivered: dict[tuple[str, str], str] = {}
    """What each undelivered alert waits for, by incident and channel."""


NOTHING_AROUND = ServiceSituation()


def why(definition: Definition, control: Control, now: float, around: ServiceSituation = NOTHING_AROUND) -> Why:
    """Explain the state of a service."""
    evidence = [_last_look(definition, control, now)]
    evidence.append(_next_look(definition, control, now, around) if around.pause is None else PAUSED)
    evidence += [_incident(one, around, now) for one in around.incidents]
    evidence += _no_incident(definition, control)
    evidence += _silence(definition, around.situation, now)
    if around.situation.roots:
        evidence.append(f"failed below it: {', '.join(around.situation.roots)}")
    evidence += [f"warning: {warning}" for warning in around.warnings]
    return Why(_verdict(definition, control, now, around), tuple(evidence), _advice(definition, control, now, around))


def _verdict(definition: Definition, control: Control, now: float, around: ServiceSituation) -> str:
    name, status = definition.name, shown_status(definition, control, now)
    if around.pause is not None:
        by = f" by {around.pause.by}" if around.pause.by else ""
        reason = f": {around.pause.reason.rstrip('.')}" if around.pause.reason else ""
        return f"{name} has been paused{by} for {_span(around.pause.at, now)}{reason}."
    since = "" if control.changed_at is None else f" for {_span(control.changed_at, now)}"
    because = "" if control.error is None else f": {control.error}"
    if status is Status.DEGRADED and around.troubled:
        because = f": {', '.join(around.troubled)}"
    if status == "stale":
        ago = "" if control.judged_at is None else f" for {_span(control.judged_at, now)}"
        return f"{name} was {control.status}, and is stale: no look was conclusive{ago}."
    if control.looked_at is None and not definition.is_heartbeat:
        return f"{name} has not been looked at yet."
    if status is Status.UNKNOWN and control.error is None:
        return f"{name} is unknown: {_nothing_said(definition, control)}."
    return f"{name} has been {status}{since}{because}."


def _nothing_said(definition: Definition, control: Control) -> str:
    if definition.is_heartbeat and control.looked_at is None:
        return "it waits for its first heartbeat"
    return "its last answer does not contain its status"


def _last_look(definition: Definition, control: Control, now: float) -> str:
    if definition.is_heartbeat:
        if control.answered_at is None:
            return "no heartbeat has come yet"
        return f"the last heartbeat came {_span(control.answered_at, now)} ago"
    where = shown_target(definition.target)
    if control.looked_at is None:
        return f"{where} is looked at every {human(definition.every_s)}"
    http = "" if control.http_status is None else f", HTTP {control.http_status}"
    took = "" if control.latency_ms is None else f", {human(control.latency_ms / 1000)}"
    row = f"; {control.failures} looks in a row got no answer" if control.failures > 1 else ""
    return f"the last look at {where} was {_span(control.looked_at, now)} ago{http}{took}{row}"


def _next_look(definition: Definition, control: Control, now: float, around: ServiceSituation) -> str:
    due_at = control.due_at if definition.is_heartbeat else look_due_at(definition, control, now)
    when = f"in {_span(now, due_at)}" if due_at > now else "due now"
    if definition.is_heartbeat:
        return f"the next heartbeat is expected within {_span(now, due_at)}" if due_at > now else "a heartbeat is late"
    if around.waits_for_host is not None:
        limit = f"at most {around.per_host} looks at one host run at a time"
        return f"the next look waits for its host: {limit}, and {around.waits_for_host} wait"
    if control.fetch != definition.fetch:
        return "the next look is due now: the target has changed"
    if breaker_phase(definition, control, now) is BreakerPhase.HALF_OPEN:
        return f"the next look is {when}: it is the probe of the breaker, which opened after failures in a row"
    return f"the next look is {when}: {_reason(definition, control)}"


def _reason(definition: Definition, control: Control) -> str:
    match control.waits:
        case "breaker":
            failures = f"after {control.failures} failures in a row"
            return f"the breaker is open {failures}, and lets one probe through then"
        case "backoff":
            return f"the backoff after {control.failures} failure{'s' if control.failures != 1 else ''} in a row"
        case "retry_after":
            return "the service asked for this with Retry-After"
        case "first":
            return "it is the first one"
        case "resumed":
            return "it was resumed"
        case _:
            return f"it is looked at every {human(definition.every_s)}"


def _no_incident(definition: Definition, control: Control) -> list[str]:
    """Explain why no incident is open although looks fail."""
    streak, alert = control.streak, definition.alert
    if streak.incident is not None or not streak.bad or streak.is_unknown:
        return []
    if alert.within is not None:
        rule = f"it opens after {alert.after} failed looks of {alert.within}, and {streak.window.bit_count()} failed"
    elif alert.lasting_s is not None:
        rule = f"it opens when looks have failed for {human(alert.lasting_s)}"
    else:
        rule = f"it opens after {alert.after} failed looks in a row, and {streak.bad} failed"
    return [f"no incident is open: {rule}"]


def _incident(incident: Incident, around: ServiceSituation, now: float) -> str:
    about = "" if incident.dependency is None else f" about {incident.dependency}"
    begun = f"incident {incident.id}{about}, open for {_span(incident.opened_at, now)}"
    if incident.acknowledged_at is not None:
        return f"{begun}: acknowledged by {incident.acknowledged_by} {_span(incident.acknowledged_at, now)} ago"
    if not incident.alert.to:
        return f"{begun}: nothing is sent, because its service names no channel"
    if incident.sent:
        return f"{begun}: {sent_words(incident.id, incident.sent, around.undelivered, now)}"
    if incident.waits == "root":
        return f"{begun}: held back, because {', '.join(incident.held_by)} below it is down"
    if incident.waits in {"mute", "maintenance"} and _silent_until(incident.service, around.situation, now) is not None:
        return f"{begun}: not sent yet, because of the {incident.waits}"
    left_s = incident.opened_at + incident.alert.delay_s - now
    return f"{begun}: alerts in {human(round(left_s))}" if left_s > 0 else f"{begun}: is about to alert"


def sent_words(incident: str, sent: Mapping[str, float], undelivered: Mapping[tuple[str, str], str], now: float) -> str:
    """Tell which channels have the alert of an incident, and what the others wait for."""
    delivered = {name: at for name, at in sent.items() if (incident, name) not in undelivered}
    words = [f"sent to {', '.join(delivered)} {_span(max(delivered.values()), now)} ago"] if delivered else []
    words += [f"not delivered to {name} yet: {undelivered[incident, name]}" for name in sent if name not in delivered]
    return "; ".join(words)


def _silence(definition: Definition, situation: Situation, now: float) -> list[str]:
    said = []
    if situation.muted_until is not None and situation.muted_until > now:
        said.append(f"muted for another {_span(now, situation.muted_until)}")
    until = maintained_until(situation.windows, definition.name, now)
    if until is not None:
        said.append(f"in maintenance for another {_span(now, until)}")
    return said


def _silent_until(service: str, situation: Situation, now: float) -> float | None:
    ends = [situation.muted_until, maintained_until(situation.windows, service, now)]
    return max((end for end in ends if end is not None and end > now), default=None)


def _advice(definition: Definition, control: Control, now: float, around: ServiceSituation) -> str | None:
    if around.pause is not None:
        return f"to look at it again: everpoll services resume {definition.name}"
    due_at = control.due_at if definition.is_heartbeat else look_due_at(definition, control, now)
    if not around.is_worker_alive:
        return "no worker is running: start one with everpoll run"
    if now > due_at + OVERDUE_S and around.waits_for_host is None:
        return f"its look is overdue by {_span(due_at, now)}: see whether the workers have free slots"
    if breaker_phase(definition, control, now) is BreakerPhase.OPEN:
        return f"to look now, as the probe: everpoll services check {definition.name}"
    return None


def _span(start: float, end: float) -> str:
    span_s = max(0.0, end - start)
    return human(round(span_s, 1) if span_s < 10 else round(span_s))
