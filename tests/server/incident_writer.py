"""Incidents as looks and workers leave them in the store, without services that fail."""

from collections.abc import Sequence

from everpoll.monitors.alerting import Alert
from everpoll.monitors.alerts.incident_row import INCIDENT, KIND, IncidentState, Orders, write
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.incident import Incident, close
from everpoll.stores.contract import Ended, NewTask, Store, WorkerCard
from everpoll.stores.operations import Revision

LEASE_S = 300.0
CARD = WorkerCard(incarnation=77, label="closer", host="here", pid=1, queues=(QUEUE,), slots=500, version="test")


def incident(number: int, service: str = "billing") -> Incident:
    """One that is open."""
    return Incident(id=f"{service}:{number}", service=service, opened_at=number, since=number, alert=Alert())


async def write_open(store: Store, incidents: Sequence[Incident]) -> None:
    """Open incidents, due later: no worker steps them."""
    await store.enqueue(
        [
            NewTask(
                name=INCIDENT,
                kind=KIND,
                queue=QUEUE,
                key=one.id,
                args=write(Orders()),
                memory=write(IncidentState(incident=one, seen_at=one.opened_at)),
                cancels_itself=True,
                indexed=True,
                once=True,
                delay_s=3_600.0,
            )
            for one in incidents
        ]
    )


async def end(store: Store, incidents: Sequence[Incident]) -> None:
    """Close incidents, and move them to the past."""
    by_key = {one.id: one for one in incidents}
    await store.sign_on(CARD, LEASE_S)
    await store.revise([Revision(KIND, one.id, hurry=True) for one in incidents])
    leased = (await store.lease(CARD.incarnation, {QUEUE: len(by_key)}, len(by_key))).leases
    assert {one.key for one in leased} == set(by_key)
    ended = [
        Ended(one.id, one.sequence, result=write(close(by_key[one.key or ""], "recovered", 1_000.0))) for one in leased
    ]
    assert not await store.settle(CARD.incarnation, ended)
    await store.sign_off(CARD.incarnation)
