"""Incident work: what the engine runs for an incident: hand over, look at the truth, take a step, settle.

    lease ──▶ hand over what was made before ──▶ the row of the service ──▶ step ──▶ settle: due again, or ended

Promises: notices are written to the memory of the incident before they go to the mailboxes. If a worker dies in
between, the next worker sends the same ones. Nothing is sent about an incident that its service does not name, except
the recovery of an incident that it once named. The task ends once the incident is over and all its notices are in the
mailboxes; its result is the closed incident.
"""

import asyncio

from msgspec.structs import replace

from everpoll.engine.work import Run, Work
from everpoll.monitors.alerts.incident_row import (
    INCIDENT,
    LONGEST_REST_S,
    SHORTEST_REST_S,
    IncidentState,
    Orders,
    Truth,
    assignment_of,
    ordered,
    read_orders,
    read_state,
    rest_s,
    seen,
    truth,
    write,
)
from everpoll.monitors.alerts.outbox import Outbox
from everpoll.monitors.alerts.surroundings import Surroundings
from everpoll.monitors.checks.assignment import KIND as CHECK_KIND
from everpoll.monitors.checks.assignment import QUEUE, Assignment
from everpoll.monitors.checks.steady import steadily
from everpoll.monitors.events import IncidentAcknowledge, about
from everpoll.monitors.events import write as write_event
from everpoll.monitors.incident import HELD_RECHECK_S, IncidentStep, Situation, next_step
from everpoll.stores.contract import Again, Ended, Lease, NewEvent, Settlement, Store, encode


class IncidentWork:
    """Takes the steps of the incidents that this process leases."""

    def __init__(self, store: Store, outbox: Outbox, surroundings: Surroundings) -> None:
        self._store = store
        self._outbox = outbox
        self._surroundings = surroundings
        self.work = Work(INCIDENT, QUEUE, self.run, handles_cancel=True, kind="incident")

    async def run(self, run: Run) -> Settlement:
        """Take one step of one incident."""
        return await steadily(run, self._run, "incident")

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
        found = truth(state.incident, row)
        known = seen(state, orders, found, now)
        if known is None:
            return _unseen(lease, state, orders, found, now)
        known = ordered(known, orders, found, now)
        assignment = None if row is None or row.ended_at is not None else assignment_of(row)
        if assignment is not None:
            # A rule that was changed meanwhile holds for what is still to be sent.
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
        """Take the step; None: what is around the incident is not known yet."""
        incident = state.incident
        if assignment is None or incident.closed_at is not None:
            return next_step(incident, now)
        situation = Situation(muted_until=assignment.muted_until, windows=await self._surroundings.windows())
        step = next_step(incident, now, situation)
        if not step.notices or incident.noticed_at is not None:
            return step
        event_loop = asyncio.get_running_loop()
        graph = await self._surroundings.graph(state.seen_at or now, lambda: run.now(event_loop.time()))
        if graph is None:
            return None
        around = replace(
            situation,
            roots=graph.held_by(incident.service, incident.dependency),
            affected=graph.affected(incident.dependency or incident.service),
        )
        return next_step(incident, now, around)


def _unseen(lease: Lease, state: IncidentState, orders: Orders, found: Truth, now: float) -> Settlement:
    """Wait for the row of the service to be settled, or end what was never open."""
    if found is Truth.NOT_YET:
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


def _rest_s(step: IncidentStep, orders: Orders, found: Truth, now: float) -> float:
    """Return the seconds until the next step."""
    delay_s = LONGEST_REST_S if step.next_at is None else min(step.next_at - now, LONGEST_REST_S)
    if step.incident.waits in {"mute", "maintenance"}:
        # Both may be lifted early.
        delay_s = min(delay_s, HELD_RECHECK_S)
    if found is Truth.OPEN and orders.closed_at is not None:
        # A look has closed it, and its row is about to say so; unless that look was lost with its worker.
        delay_s = min(delay_s, rest_s(orders.closed_at, now))
    return max(0.0, delay_s)
