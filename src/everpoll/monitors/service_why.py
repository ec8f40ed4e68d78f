"""Explains a service for `everpoll why`: reads its incidents, maintenance windows, failed dependencies and workers."""

import time

import msgspec

from everpoll.engine.live_workers import is_any_alive
from everpoll.engine.why import Why
from everpoll.http.stored_secrets import without_secrets
from everpoll.monitors.alerts.incident_row import (
    KIND,
    OpenState,
    assignment_of,
    control_of,
    ordered,
    orders_of,
    state_of,
)
from everpoll.monitors.alerts.situation_reader import SituationReader
from everpoll.monitors.alerts.undelivered import undelivered
from everpoll.monitors.control import Control
from everpoll.monitors.incident import Incident, Situation
from everpoll.monitors.report import Status
from everpoll.monitors.why import ServiceSituation, why
from everpoll.stores.contract import Store, TaskInfo

NAMED = 3
"""Dependencies that the first sentence names."""
_TROUBLED = frozenset({Status.DOWN.value, Status.DEGRADED.value})


async def why_service(store: Store, row: TaskInfo) -> Why:
    """Explain the state of a service, without secrets that a remote repeated."""
    assignment, control, now = assignment_of(row), control_of(row), time.time()
    incidents = await _incidents(store, control, now)
    around = ServiceSituation(
        incidents=incidents,
        situation=await _situation(store, assignment.definition.name, control, assignment.muted_until),
        is_worker_alive=is_any_alive(await store.workers()),
        warnings=control.warnings,
        troubled=await _troubled(store, assignment.definition.name),
        pause=assignment.paused,
        undelivered=await undelivered(store, {name for one in incidents for name in one.sent}, now),
    )
    answer = why(assignment.definition, control, now, around)
    return Why(_sentence(answer.verdict), tuple(map(_sentence, answer.evidence)), answer.advice)


def _sentence(text: str) -> str:
    """Return the text as one line, so that text of a remote cannot imitate a line of ours."""
    return " ".join(str(without_secrets(text)).split())


async def _incidents(store: Store, control: Control, now: float) -> tuple[Incident, ...]:
    """Return the open incidents that the row of a service names: its own, and those of its dependencies."""
    named = (control.streak.incident, *(one.incident for one in control.dependencies.values()))
    found = [await store.find(KIND, incident) for incident in named if incident is not None]
    live = [row for row in found if row is not None and row.ended_at is None and row.memory is not None]
    return tuple(ordered(state_of(row), orders_of(row), OpenState.OPEN, now).incident for row in live)


async def _troubled(store: Store, name: str) -> tuple[str, ...]:
    """Return the dependencies that a service reports as down or degraded, in words."""
    found = [one for one in await store.health.dependencies(name) if not one.vanished and one.status in _TROUBLED]
    found.sort(key=lambda one: one.status != Status.DOWN.value)
    words = [f"{one.name} is {one.status}" + (f" ({one.error_message})" if one.error_message else "") for one in found]
    more = [f"and {len(words) - NAMED} more"] if len(words) > NAMED else []
    return (*words[:NAMED], *more)


async def _situation(store: Store, name: str, control: Control, muted_until: float | None) -> Situation:
    situation_reader = SituationReader(store)
    try:
        situation = Situation(muted_until=muted_until, windows=await situation_reader.windows())
        # Only a service that is down has roots. Reading all services is the most expensive query here.
        graph = await situation_reader.graph(0.0, time.time) if control.status is Status.DOWN else None
        return situation if graph is None else msgspec.structs.replace(situation, roots=graph.root_cause(name))
    finally:
        await situation_reader.close()
