"""Incident work: the engine runs it for an incident: hand over, read the service's row, take a step, settle.

    lease ──▶ hand over notices ──▶ read the row of the service ──▶ step ──▶ settle: due again, or ended

Promises: notices are written to the memory of the incident before they go to the mailboxes. If a worker dies in
between, the next worker hands over the same notices. Nothing is sent about an incident that the row of its service has
never named. The task ends once the incident is over and all its notices are in the mailboxes; its result is the closed
incident.
"""

import asyncio

from msgspec.structs import replace

from everpoll.engine.work import Run, Work
from everpoll.monitors.alerts.incident_row import (
    INCIDENT,
    LONGEST_REST_S,
    SHORTEST_REST_S,
    IncidentState,
    OpenState,
    Orders,
    assignment_of,
    open_state,
    ordered,
    read_orders,
    read_state,
    rest_s,
    seen,
    write,
)
from everpoll.monitors.alerts.outbox import Outbox
from everpoll.monitors.alerts.situation_reader import SituationReader
from everpoll.monitors.checks.assignment import KIND as CHECK_KIND
from everpoll.monitors.checks.assignment import QUEUE, Assignment
from everpoll.monitors.checks.run_or_retry import run_or_retry
from everpoll.monitors.events import IncidentAcknowledge, about
from everpoll.monitors.events import write as write_event
from everpoll.monitors.incident import HELD_RECHECK_S, IncidentStep, Situation, next_step
from everpoll.stores.contract import Again, Ended, Lease, NewEvent, Settlement, Store, encode


class IncidentWork:
    """Takes the steps of the incidents that this process leases."""

    def __init__(self, store: Store, outbox: Outbox, situation_reader: SituationReader) -> None:
        self._store = store
        self._outbox = outbox
        self._situation_reader = situation_reader
        self.work = Work(INCIDENT, QUEUE, self.run, handles_cancel=True, kind="incident")

    async def run(self, run: Run) -> Settlement:
        """Take one step of one incident."""
        return await run_or_retry(run, self._run, "incident")

    async def _run(self, run: Run) -> Settlement:
        lease = run.lease
        assert lease.memory is not None, "an incident's row is made with its memory"
        state, orders = read_state(lease.memory), read_orders(lease.args)
        if state.outgoing:
            await self._outbox.hand_over(state.outgoing)
            state = replace(state, outgoing=())
            if state.is_over:
                return _settled(lease, state, state, None)
        row = await self._store.find(CHECK_KIND, state.incident.service)
        now = run.now(asyncio.get_running_loop().time())
        found = open_state(state.incident, row)
        known = seen(state, orders, found, now)
        if known is None:
            return _unseen(lease, state, orders, found, now)
        known = ordered(known, orders, found, now)
        assignment = None if row is None or row.ended_at is not None else assignment_of(row)
        if assignment is not None:
            # If the alert rule was changed meanwhile, the new one holds for further notices.
            known = replace(known, incident=replace(known.incident, alert=assignment.definition.alert))
        step = await self._step(run, known, assignment, now)
        if step is None:
            return _settled(lease, state, known, SHORTEST_REST_S)
        after = replace(known, incident=step.incident)
        if step.notices:
            is_over = step.incident.closed_at is not None
            return _settled(lease, state, replace(after, outgoing=step.notices, is_over=is_over), 0.0)
        return _settled(lease, state, after, None if step.next_at is None else _rest_s(step, orders, found, now))

    async def _step(
        self, run: Run, state: IncidentState, assignment: Assignment | None, now: float
    ) -> IncidentStep | None:
        """Take the step; return None if the situation of the incident is not known yet."""
        incident = state.incident
        if assignment is None or incident.closed_at is not None:
            return next_step(incident, now)
        situation = Situation(muted_until=assignment.muted_until, windows=await self._situation_reader.windows())
        step = next_step(incident, now, situation)
        if not step.notices or incident.noticed_at is not None:
            return step
        event_loop = asyncio.get_running_loop()
        graph = await self._situation_reader.graph(state.seen_at or now, lambda: run.now(event_loop.time()))
        if graph is None:
            return None
        around = replace(
            situation,
            roots=graph.held_by(incident.service, incident.dependency),
            affected=graph.affected(incident.dependency or incident.service),
        )
        return next_step(incident, now, around)


def _unseen(lease: Lease, state: IncidentState, orders: Orders, found: OpenState, now: float) -> Settlement:
    """Wait until the row of the service is settled, or end an incident that was never open."""
    if found is OpenState.NOT_YET:
        opened_at = (orders.opened or state.incident).opened_at
        return Again(lease.id, lease.sequence, rest_s(opened_at, now), refund=True, memory=write(state))
    note = encode({"what": "canceled", "why": "the service does not know this incident: it was never open"})
    return Ended(lease.id, lease.sequence, "canceled", note=note)


def _settled(lease: Lease, before: IncidentState, after: IncidentState, delay_s: float | None) -> Settlement:
    """Settle with a new state; without a delay, the incident has ended."""
    events: tuple[NewEvent, ...] = ()
    incident = after.incident
    if incident.acknowledged_at is not None and before.incident.acknowledged_at is None:
        common = about(incident.service, incident.acknowledged_at)
        by = incident.acknowledged_by or ""
        events = (NewEvent(after.seq + 1, write_event(IncidentAcknowledge(**common, incident_id=incident.id, by=by))),)
        after = replace(after, seq=after.seq + 1)
    if delay_s is None:
        return Ended(lease.id, lease.sequence, "done", result=write(incident), events=events)
    return Again(lease.id, lease.sequence, delay_s, refund=True, memory=write(after), events=events)


def _rest_s(step: IncidentStep, orders: Orders, found: OpenState, now: float) -> float:
    """Return the seconds until the next step."""
    delay_s = LONGEST_REST_S if step.next_at is None else min(step.next_at - now, LONGEST_REST_S)
    if step.incident.waits in {"mute", "maintenance"}:
        # Both may be lifted early.
        delay_s = min(delay_s, HELD_RECHECK_S)
    if found is OpenState.OPEN and orders.closed_at is not None:
        # A look has closed it, and the row of the service will say so, unless the worker of that look died.
        delay_s = min(delay_s, rest_s(orders.closed_at, now))
    return max(0.0, delay_s)
