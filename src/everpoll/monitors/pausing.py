"""Pausing: decides about a service that an operator pauses or resumes.

    looked at ──pause──▶ paused: no look is made, no heartbeat counts, no incident is open
        ▲───resume─────────┘     due at once; breaker, backoff and counts of failed looks start over

Promises: the time of a pause counts as neither uptime nor downtime. Open incidents are closed with the pause as the
reason, so no reminder is sent about a paused service. A Retry-After holds during a pause, too. Pure.
"""

from msgspec.structs import replace

from everpoll.monitors.control import Control
from everpoll.monitors.decision import Decision
from everpoll.monitors.definition import Definition
from everpoll.monitors.events import ServiceEvent, ServicePaused, ServiceResumed, StatusChange, about
from everpoll.monitors.heartbeats import heartbeat_due_at
from everpoll.monitors.incident_changes import IncidentChanges
from everpoll.monitors.next_look import SHORTEST_REST_S
from everpoll.monitors.pause import ServicePause, pause_text
from everpoll.monitors.report import Status

REST_S = 86_400.0
"""How long the row of a paused service rests at a time; a resume makes it due at once."""


def paused(definition: Definition, control: Control, pause: ServicePause, now: float) -> Decision:
    """Decide about the row of a paused service. The first time closes its incidents."""
    if control.paused_at is not None:
        return Decision(control, now + REST_S)
    incidents = IncidentChanges(definition, control, now, now)
    incidents.end(pause_text(pause))
    common = about(definition.name, now)
    events: list[ServiceEvent] = [ServicePaused(**common, reason=pause.reason, by=pause.by)]
    if control.status is not Status.UNKNOWN:
        change = StatusChange(
            **common,
            dependency_name=None,
            previous_healthy=control.status.healthy,
            current_healthy=None,
            previous_status=control.status,
            current_status=Status.UNKNOWN,
            error=pause_text(pause),
        )
        events.append(change)
    events += incidents.events()
    after = replace(
        control,
        paused_at=now,
        due_at=now + REST_S,
        waits="paused",
        status=Status.UNKNOWN,
        changed_at=now,
        judged_at=None,
        error=None,
        warnings=(),
        failures=0,
        failed_at=None,
        opened_at=None,
        # The first answer after the pause is read in full, because the streaks of dependencies start over.
        body=None,
        seq=control.seq + len(events),
    )
    return Decision(incidents.written(after), after.due_at, tuple(events), (), tuple(incidents.closed))


def resumed(definition: Definition, control: Control, beats: int, now: float) -> Decision:
    """Decide about the row of a resumed service: a look is due now; a heartbeat has a whole interval.

    `beats` is the number of heartbeats so far; those during the pause do not count.
    """
    after = replace(control, paused_at=None, waits="resumed", beats=beats, seq=control.seq + 1)
    if definition.is_heartbeat:
        after = replace(after, origin_at=now, every_s=definition.every_s, waits="heartbeat")
        after = replace(after, due_at=heartbeat_due_at(definition, after))
    else:
        due_at = now + SHORTEST_REST_S
        after = replace(after, due_at=due_at if control.not_before is None else max(due_at, control.not_before))
    return Decision(after, after.due_at, (ServiceResumed(**about(definition.name, now)),))
