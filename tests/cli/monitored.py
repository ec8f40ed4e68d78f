"""A database with services in it, as a fleet leaves it: published, looked at, recorded."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from everpoll.monitors.alerts.incident_row import INCIDENT, KIND, IncidentState
from everpoll.monitors.alerts.incident_row import write as write_row
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.definition import Definition
from everpoll.monitors.incident import Incident
from everpoll.monitors.services import Services
from everpoll.policy.rollup import HealthWord
from everpoll.stores.contract import Again, Ended, NewTask, Settlement, Store, WorkerCard
from everpoll.stores.health import NewDependency, NewLook
from everpoll.stores.operations import Revision
from everpoll.stores.urls import store_for

T = TypeVar("T")
LEASE_S = 30.0
GONE = WorkerCard(incarnation=7, label="gone", host="elsewhere", pid=1, queues=(QUEUE,), slots=1, version="0")


class Monitored:
    """The services at one address, without a worker."""

    def __init__(self, url: str) -> None:
        self.url = url

    def publish(self, *definitions: Definition) -> None:
        async def write(store: Store) -> None:
            await services_of(store).publish(definitions)

        self.use(write)

    def record(self, *looks: NewLook) -> None:
        self.use(lambda store: store.health.record(looks))

    def open_incident(self, incident: Incident) -> None:
        """Leave an incident as the worker leaves it that has seen it open."""

        async def write(store: Store) -> None:
            memory = write_row(IncidentState(incident=incident, seen_at=incident.opened_at))
            task = NewTask(
                name=INCIDENT, kind=KIND, queue=QUEUE, key=incident.id, memory=memory, args="{}", indexed=True
            )
            await store.enqueue([task])

        self.use(write)

    def close_incident(self, incident: Incident) -> None:
        """Leave an incident that is over."""
        self.open_incident(incident)

        async def write(store: Store) -> None:
            await store.sign_on(GONE, LEASE_S)
            for lease in (await store.lease(GONE.incarnation, {QUEUE: 100}, 100)).leases:
                settlement: Settlement = Again(lease.id, lease.sequence, 3600.0, refund=True)
                if lease.key == incident.id:
                    settlement = Ended(lease.id, lease.sequence, "done", result=write_row(incident))
                await store.settle(GONE.incarnation, [settlement])
            await store.sign_off(GONE.incarnation)

        self.use(write)

    def remember(self, name: str, **fields: object) -> None:
        """Settle the task of a service as the worker that looked at it does, with these fields in its memory."""

        async def write(store: Store) -> None:
            row = await services_of(store).row(name)
            await store.revise([Revision("check", name, hurry=True)])
            await store.sign_on(GONE, LEASE_S)
            for lease in (await store.lease(GONE.incarnation, {QUEUE: 100}, 100)).leases:
                memory = lease.memory
                if lease.key == name:
                    memory = msgspec.json.encode(row.memory | fields).decode()
                await store.settle(
                    GONE.incarnation, [Again(lease.id, lease.sequence, 3600.0, refund=True, memory=memory)]
                )
            await store.sign_off(GONE.incarnation)

        self.use(write)

    def use(self, call: Callable[[Store], Awaitable[T]]) -> T:
        async def main() -> T:
            store = store_for(self.url)
            await store.open()
            try:
                return await call(store)
            finally:
                await store.close()

        return asyncio.run(main())


def services_of(store: Store) -> Services:
    async def opened() -> Store:
        return store

    return Services(opened, time.time, "test")


def looks(
    service: str, statuses: Sequence[HealthWord], *, every_s: float = 30.0, latency_ms: float | None = 20.0
) -> list[NewLook]:
    """Looks up to now, the oldest first."""
    now = time.time()
    return [
        NewLook(
            service=service,
            at=now - every_s * (len(statuses) - place),
            status=status,
            span_s=every_s,
            latency_ms=None if status == "down" else latency_ms,
            error="refused" if status == "down" else None,
        )
        for place, status in enumerate(statuses)
    ]


def dependency(name: str, status: HealthWord, **fields: str) -> NewDependency:
    now = time.time()
    return msgspec.structs.replace(NewDependency(name=name, status=status, changed_at=now, seen_at=now), **fields)
