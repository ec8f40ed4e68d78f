"""The one decision about a service: (definition, memory, look, now) → (memory, next look, events, incidents).

                    wake ──▶ look ──▶ decide ──▶ settle the row, due again at `next_at`
    due ──lease──▶    │
                      └────▶ not yet, or a missed heartbeat ──▶ settle the row

Pure: the time and the random number for jitter are arguments. Promises:
- the same memory and look give the same decision, ids of incidents included;
- `next_at` is later than `now`, and not earlier than breaker, backoff and Retry-After allow;
- a look that is not conclusive changes the status to unknown, but neither breaker, backoff nor incidents;
- events are numbered: the last one has the number `control.seq`.
"""

from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.control import CALM, Control
from everpoll.monitors.definition import Definition
from everpoll.monitors.dependencies import NO_CHANGES, Changes
from everpoll.monitors.events import (
    CircuitClose,
    CircuitOpen,
    PollComplete,
    PollError,
    ServiceEvent,
    ServiceStarted,
    ServiceStopped,
    StatusChange,
    about,
)
from everpoll.monitors.heartbeats import heartbeat_due_at, heartbeat_look, heartbeat_planned
from everpoll.monitors.incident import Incident
from everpoll.monitors.incident_changes import REMOVED, Closing, IncidentChanges, next_opening
from everpoll.monitors.look import Look, kept_warnings, verdict
from everpoll.monitors.look_grid import first_look_at, next_grid_time
from everpoll.monitors.next_look import (
    EARLY_S,
    SHORTEST_REST_S,
    after_answer,
    after_failure,
    after_inconclusive,
    look_due_at,
    started_over,
)
from everpoll.monitors.report import Status


class Decision(Struct, frozen=True, gc=False):
    """How to settle the row, and the incidents to open and close."""

    control: Control
    next_at: float
    """When the row is due again: for the next look, or for an incident that opens by time."""
    events: tuple[ServiceEvent, ...] = ()
    """The durable events, in order; the last one has the number `control.seq`."""
    opened: tuple[Incident, ...] = ()
    closed: tuple[Closing, ...] = ()


class Wake(Struct, frozen=True, gc=False):
    """Whether to look now, for a row that was leased."""

    looks: bool
    is_probe: bool = False
    """The breaker is open: this look is its probe."""
    decision: Decision | None = None
    """How to settle the row without a look; None if there is one."""


def register(definition: Definition, now: float) -> Decision:
    """Return the first memory of a service, and the time of its first look."""
    if definition.is_heartbeat:
        due_at = now + definition.every_s + definition.timeout_s
    else:
        due_at = first_look_at(now, definition.phase_s, definition.every_s)
    control = Control(
        born=int(now),
        fetch=definition.fetch,
        every_s=definition.every_s,
        due_at=due_at,
        waits="heartbeat" if definition.is_heartbeat else "first",
        origin_at=now if definition.is_heartbeat else None,
        seq=1,
    )
    return Decision(control, due_at, (ServiceStarted(**about(definition.name, now)),))


def remove(definition: Definition, control: Control, now: float) -> Decision:
    """Decide about the row of a removed service: its open incidents close."""
    incidents = IncidentChanges(definition, control, now, now)
    incidents.end(REMOVED)
    events = (*incidents.events(), ServiceStopped(**about(definition.name, now)))
    return Decision(replace(control, seq=control.seq + len(events)), now, events, (), tuple(incidents.closed))


def wake(definition: Definition, control: Control, now: float, *, is_forced: bool = False) -> Wake:
    """Return whether to look now. A forced look ignores breaker, backoff and Retry-After."""
    if definition.is_heartbeat:
        return Wake(False, decision=_await_beat(definition, control, now))
    due_at = look_due_at(definition, control, now)
    if is_forced or now >= due_at - EARLY_S:
        is_open = control.opened_at is not None and control.fetch == definition.fetch
        return Wake(True, is_probe=is_open and definition.breaker is not None)
    incidents = IncidentChanges(definition, control, now, now)
    incidents.time(control)
    planned = replace(control, due_at=due_at, every_s=definition.every_s)
    return Wake(False, decision=_settled(definition, planned, incidents, [], now))


def decide(
    definition: Definition,
    control: Control,
    look: Look,
    now: float,
    changes: Changes = NO_CHANGES,
    chance: float = 0.5,
) -> Decision:
    """Decide what follows from a look; `changes` is what `dependencies.compare` found in its report."""
    if _is_uneventful(definition, control, look, changes):
        return _uneventful(definition, control, look, now, changes)
    same = started_over(definition, control, look.started_at)
    if look.reached:
        planned = after_answer(definition, same, look, now)
    elif look.is_conclusive:
        planned = after_failure(definition, same, look, now, chance)
    else:
        planned = after_inconclusive(definition, same, look, now)
    return _concluded(definition, control, planned, look, now, changes)


def beat(definition: Definition, control: Control, now: float, status: Status = Status.UP) -> Decision:
    """Decide what follows from a heartbeat, which may contain the status of the service."""
    same = started_over(definition, control, now)
    look = Look(started_at=now, ended_at=now, reached=True, status=status)
    return _concluded(definition, control, heartbeat_planned(definition, same, look), look, now, NO_CHANGES)


def look_events(
    definition: Definition, look: Look, decision: Decision, changes: Changes = NO_CHANGES
) -> tuple[ServiceEvent, ...]:
    """Return the events of one look that are not stored; only subscribers in this process get them."""
    common = about(definition.name, look.ended_at)
    complete = PollComplete(
        **common,
        success=look.reached is True,
        dependencies_updated=len(changes.upserts),
        status_changes=tuple(event for event in decision.events if isinstance(event, StatusChange)),
        error=decision.control.error,
        warnings=look.warnings,
        latency_ms=look.latency_ms,
    )
    if look.reached:
        return (complete,)
    return (complete, PollError(**common, error=decision.control.error or "not reached"))


def _is_uneventful(definition: Definition, control: Control, look: Look, changes: Changes) -> bool:
    """Return True if the look was on time and found a healthy service unchanged, as nearly every look does."""
    if not look.reached or look.status is not control.status or not control.status.healthy or look.is_forced:
        return False
    if control.failures or control.not_before is not None or look.retry_after_s is not None or look.error is not None:
        return False
    if control.fetch != definition.fetch or control.every_s != definition.every_s or control.error is not None:
        return False
    if control.streak != CALM or control.dependencies or changes.events or control.due_at > look.started_at + EARLY_S:
        return False
    return look.report is None or all(one.status is not Status.DOWN for one in look.report.dependencies)


def _uneventful(definition: Definition, control: Control, look: Look, now: float, changes: Changes) -> Decision:
    due_at = next_grid_time(control.due_at, now, definition.phase_s, definition.every_s)
    after = replace(
        control,
        origin_at=control.due_at,
        due_at=due_at,
        waits="interval",
        looked_at=look.started_at,
        judged_at=look.ended_at,
        answered_at=look.ended_at,
        http_status=look.http_status,
        latency_ms=look.latency_ms,
        body=look.body,
        warnings=kept_warnings(look),
        edition=control.edition + 1 if changes.upserts else control.edition,
    )
    return Decision(after, due_at)


def _concluded(
    definition: Definition, before: Control, planned: Control, look: Look, now: float, changes: Changes
) -> Decision:
    """Derive status, events and incidents from a look; `planned` already has the next due time."""
    status, error = verdict(look)
    at = min(look.ended_at, now)
    has_changed = status is not before.status
    after = replace(
        planned,
        looked_at=look.started_at,
        judged_at=at if look.is_conclusive else before.judged_at,
        answered_at=at if look.reached else before.answered_at,
        status=status,
        changed_at=at if has_changed or before.changed_at is None else before.changed_at,
        error=error,
        http_status=look.http_status,
        latency_ms=look.latency_ms,
        body=look.body if look.reached else planned.body,
        warnings=kept_warnings(look),
        edition=before.edition + 1 if changes.upserts else before.edition,
    )
    events = _status_change(definition, before, after, at) if has_changed else []
    events += _circuit(definition, before, after, at)
    incidents = IncidentChanges(definition, after, at, now)
    incidents.look(look, status, error)
    return _settled(definition, after, incidents, [*events, *changes.events], now)


def _settled(
    definition: Definition, control: Control, incidents: IncidentChanges, events: list[ServiceEvent], now: float
) -> Decision:
    events += incidents.events()
    after = incidents.written(replace(control, seq=control.seq + len(events)))
    opening_at = next_opening(definition, after)
    next_at = after.due_at if opening_at is None else min(after.due_at, opening_at)
    next_at = next_at if next_at > now else now + SHORTEST_REST_S
    return Decision(after, next_at, tuple(events), tuple(incidents.opened), tuple(incidents.closed))


def _status_change(definition: Definition, before: Control, after: Control, at: float) -> list[ServiceEvent]:
    return [
        StatusChange(
            **about(definition.name, at),
            dependency_name=None,
            previous_healthy=before.status.healthy,
            current_healthy=after.status.healthy,
            previous_status=before.status,
            current_status=after.status,
            error=after.error,
        )
    ]


def _circuit(definition: Definition, before: Control, after: Control, at: float) -> list[ServiceEvent]:
    """Return an event if the breaker opened or closed. A failed probe is not an event: the breaker stays open."""
    common = about(definition.name, at)
    if before.opened_at is None and after.opened_at is not None:
        return [CircuitOpen(**common, failures=after.failures, until=after.due_at)]
    if before.opened_at is not None and after.opened_at is None:
        return [CircuitClose(**common)]
    return []


def _await_beat(definition: Definition, control: Control, now: float) -> Decision:
    """Decide about a heartbeat service whose row is due: the heartbeat is late, or its deadline has changed."""
    same = started_over(definition, control, now)
    if now < heartbeat_due_at(definition, same) - EARLY_S:
        incidents = IncidentChanges(definition, same, now, now)
        incidents.time(same)
        due_at = heartbeat_due_at(definition, same)
        return _settled(definition, replace(same, due_at=due_at, every_s=definition.every_s), incidents, [], now)
    look = heartbeat_look(definition, same, now)
    return _concluded(definition, control, heartbeat_planned(definition, same, look), look, now, NO_CHANGES)
