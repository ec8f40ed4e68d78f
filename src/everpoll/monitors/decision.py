"""The one decision about a service: (definition, memory, look, now) → (memory, next look, events, incidents).

                    wake ──▶ look ──▶ decide ──▶ settle the row, due again at `next_at`
    due ──lease──▶    │
                      └────▶ not yet, or a missed heartbeat ──▶ settle the row

Pure: the time and the chance for jitter are arguments. Promises:

- a decision that is repeated from the same memory and look is the same, ids of incidents included;
- `next_at` is later than `now`, and not earlier than breaker, backoff and Retry-After allow;
- a look that says nothing about the service changes its status to unknown, and neither breaker, backoff nor incident;
- events are numbered: the last of them has the number `control.seq`.
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
from everpoll.monitors.look import Look, kept_warnings, verdict
from everpoll.monitors.next_look import (
    EARLY_S,
    SHORTEST_REST_S,
    after_answer,
    after_failure,
    after_nothing,
    look_due_at,
    started_over,
)
from everpoll.monitors.report import Status
from everpoll.monitors.slots import first_look_at, next_slot
from everpoll.monitors.turns import REMOVED, Closing, Turns, next_opening


class Decision(Struct, frozen=True, gc=False):
    """What to settle the row with, and what to write beside it."""

    control: Control
    next_at: float
    """When the row is due again: for the next look, or for an incident that opens by time."""
    events: tuple[ServiceEvent, ...] = ()
    """Durable ones, in order; the last has the number `control.seq`."""
    opened: tuple[Incident, ...] = ()
    closed: tuple[Closing, ...] = ()


class Wake(Struct, frozen=True, gc=False):
    """What to do with a row that was leased."""

    looks: bool
    is_probe: bool = False
    """The breaker is open: this look is its probe."""
    decision: Decision | None = None
    """Where there is no look: what to settle the row with."""


def register(definition: Definition, now: float) -> Decision:
    """Return the first memory of a service, and when it is first looked at."""
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
        slot_at=now if definition.is_heartbeat else None,
        seq=1,
    )
    return Decision(control, due_at, (ServiceStarted(**about(definition.name, now)),))


def remove(definition: Definition, control: Control, now: float) -> Decision:
    """Return what is left to tell about a service that is removed: its open incidents close."""
    turns = Turns(definition, control, now, now)
    turns.end(REMOVED)
    events = (*turns.events(), ServiceStopped(**about(definition.name, now)))
    return Decision(replace(control, seq=control.seq + len(events)), now, events, (), tuple(turns.closed))


def wake(definition: Definition, control: Control, now: float, *, is_forced: bool = False) -> Wake:
    """Say whether to look now. A forced look is made whatever breaker, backoff and Retry-After say."""
    if definition.is_heartbeat:
        return Wake(False, decision=_await_beat(definition, control, now))
    due_at = look_due_at(definition, control, now)
    if is_forced or now >= due_at - EARLY_S:
        is_open = control.opened_at is not None and control.fetch == definition.fetch
        return Wake(True, is_probe=is_open and definition.breaker is not None)
    turns = Turns(definition, control, now, now)
    turns.time(control)
    planned = replace(control, due_at=due_at, every_s=definition.every_s)
    return Wake(False, decision=_settled(definition, planned, turns, [], now))


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
        planned = after_nothing(definition, same, look, now)
    return _concluded(definition, control, planned, look, now, changes)


def beat(definition: Definition, control: Control, now: float, status: Status = Status.UP) -> Decision:
    """Decide what follows from a heartbeat that came; the service may say in it how it is."""
    same = started_over(definition, control, now)
    look = Look(started_at=now, ended_at=now, reached=True, status=status)
    return _concluded(definition, control, heartbeat_planned(definition, same, look), look, now, NO_CHANGES)


def look_events(
    definition: Definition, look: Look, decision: Decision, changes: Changes = NO_CHANGES
) -> tuple[ServiceEvent, ...]:
    """Return the events of one look that live in the process alone; made where a subscriber listens."""
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
    """Return True if a healthy service was looked at on time and has not changed, as in nearly every look."""
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
    due_at = next_slot(control.due_at, now, definition.phase_s, definition.every_s)
    after = replace(
        control,
        slot_at=control.due_at,
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
    turns = Turns(definition, after, at, now)
    turns.look(look, status, error)
    return _settled(definition, after, turns, [*events, *changes.events], now)


def _settled(
    definition: Definition, control: Control, turns: Turns, events: list[ServiceEvent], now: float
) -> Decision:
    events += turns.events()
    after = turns.written(replace(control, seq=control.seq + len(events)))
    opening_at = next_opening(definition, after)
    next_at = after.due_at if opening_at is None else min(after.due_at, opening_at)
    next_at = next_at if next_at > now else now + SHORTEST_REST_S
    return Decision(after, next_at, tuple(events), tuple(turns.opened), tuple(turns.closed))


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
    """Return an event if the breaker opened or closed. A failed probe leaves it open, which is not an event."""
    common = about(definition.name, at)
    if before.opened_at is None and after.opened_at is not None:
        return [CircuitOpen(**common, failures=after.failures, until=after.due_at)]
    if before.opened_at is not None and after.opened_at is None:
        return [CircuitClose(**common)]
    return []


def _await_beat(definition: Definition, control: Control, now: float) -> Decision:
    """Decide about a heartbeat service when its row is due: the beat is late, or the deadline has moved."""
    same = started_over(definition, control, now)
    if now < heartbeat_due_at(definition, same) - EARLY_S:
        turns = Turns(definition, same, now, now)
        turns.time(same)
        due_at = heartbeat_due_at(definition, same)
        return _settled(definition, replace(same, due_at=due_at, every_s=definition.every_s), turns, [], now)
    look = heartbeat_look(definition, same, now)
    return _concluded(definition, control, heartbeat_planned(definition, same, look), look, now, NO_CHANGES)
