"""Records: makes history entries of looks, heartbeats and pauses. Pure."""

from everpoll.monitors.control import Control
from everpoll.monitors.decision import Decision
from everpoll.monitors.definition import Definition
from everpoll.monitors.dependencies import Changes, Known
from everpoll.monitors.look import Look
from everpoll.monitors.pause import ServicePause, pause_text
from everpoll.monitors.report import Status
from everpoll.stores.health import NewDependency, NewError, NewLook

SHORTEST_S = 0.001
"""The shortest time that a look covers, even if the store's clock was set back during the look."""


def new_look(definition: Definition, look: Look, decision: Decision, changes: Changes) -> NewLook:
    """Return the history entry of a look."""
    control = decision.control
    latencies = {one.name: one.latency_ms for one in changes.latencies}
    return NewLook(
        service=definition.name,
        at=look.started_at,
        status=control.status.value,
        span_s=max(SHORTEST_S, control.due_at - look.started_at),
        latency_ms=look.latency_ms,
        error=control.error,
        http_status=look.http_status,
        latencies=latencies or None,
        dependencies=tuple(_dependency(one, look, latencies.get(one.name)) for one in changes.upserts),
        errors=tuple(
            NewError(dependency=one.name, error=one.error, error_message=one.message) for one in changes.errors
        ),
    )


def heartbeat_record(definition: Definition, before: Control, decision: Decision) -> NewLook | None:
    """Return the history entry of a heartbeat, or of a missed one; None if there was neither."""
    control = decision.control
    if control.looked_at is None or control.looked_at == before.looked_at:
        return None
    return NewLook(
        service=definition.name,
        at=control.looked_at,
        status=control.status.value,
        span_s=max(SHORTEST_S, control.due_at - control.looked_at),
        error=control.error,
    )


def pause_mark(service: str, pause: ServicePause, now: float) -> NewLook:
    """Return the history entry of a pause: it ends the time that the look before it covers."""
    return NewLook(service=service, at=now, status=Status.UNKNOWN.value, span_s=SHORTEST_S, error=pause_text(pause))


def _dependency(known: Known, look: Look, latency_ms: float | None) -> NewDependency:
    reported = known.reported
    return NewDependency(
        name=known.name,
        status=reported.status.value,
        changed_at=known.changed_at,
        seen_at=look.ended_at if known.vanished_at is None else known.vanished_at,
        vanished=known.vanished_at is not None,
        skipped=reported.skipped,
        latency_ms=latency_ms,
        type=reported.type,
        impact=reported.impact,
        description=reported.description,
        contact=reported.contact,
        check_details=reported.check_details,
        error=reported.error,
        error_message=reported.error_message,
    )
