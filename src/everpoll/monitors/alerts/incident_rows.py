"""Incident rows: where looks open and close incidents, and operators acknowledge them.

Promises: an incident has one row, however often and by however many workers it is opened. A change of its orders keeps
other changes: the orders are read, changed and written back only if no other change came in between. Every change makes
the row due soon, so that it reads the row of its service.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from everpoll.monitors.alerts.incident_row import (
    INCIDENT,
    KIND,
    IncidentState,
    Orders,
    orders_of,
    state_of,
    with_closing,
    write,
)
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.incident import Incident
from everpoll.monitors.incident_changes import Closing
from everpoll.stores.contract import NewTask, Store, TaskInfo, encode
from everpoll.stores.operations import Revision

NO_ORDERS = write(Orders())
COLLISION_S = 0.05
"""How long to wait at most after another process has changed the same row."""


class IncidentRows:
    """The rows of all incidents."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rng = random.Random()  # noqa: S311 - jitter needs no secure randomness

    async def opened(self, incidents: Sequence[Incident]) -> None:
        """Make a row for each incident, once, however often this is repeated."""
        made = await self._store.enqueue([_new_task(incident) for incident in incidents])
        for incident, answer in zip(incidents, made, strict=True):
            if not answer.is_new:
                # The row may wait for a decision that was lost, and its times may be old.
                await self.order(incident.id, _opened_again(incident))

    async def closed(self, closings: Sequence[Closing]) -> None:
        """Make the rows of these incidents due soon: the row of their service shows that they are over."""
        # Nearly all have no orders yet, so one statement changes all of these.
        revisions = [Revision(KIND, one.id, write(with_closing(Orders(), one)), expects=NO_ORDERS) for one in closings]
        changed = await self._store.revise(revisions) if revisions else []
        for one, task_id in zip(closings, changed, strict=True):
            if task_id is None:
                await self.order(one.id, _closing(one))

    async def order(
        self, incident_id: str, edit: Callable[[TaskInfo, Orders], Orders], note: str | None = None
    ) -> TaskInfo | None:
        """Change the orders of a live incident; return its row as it was read, or None if there is none.

        The note is written to the log together with the change; if nothing changes, it is dropped.
        """
        while True:
            row = await self._store.find(KIND, incident_id)
            if row is None or row.state in {"done", "canceled"}:
                return row
            if row.state == "failed":
                # Its workers died several times. It ends only when the row of its service says so.
                await self._store.retry(row.id, encode({"what": "retry", "why": "the incident is not over"}))
                continue
            before = orders_of(row)
            orders = edit(row, before)
            known = None if orders == before else note
            revision = Revision(KIND, incident_id, write(orders), hurry=True, expects=encode(row.args), note=known)
            if (await self._store.revise([revision]))[0] is not None:
                return row
            await asyncio.sleep(self._rng.random() * COLLISION_S)


def _opened_again(incident: Incident) -> Callable[[TaskInfo, Orders], Orders]:
    def edit(row: TaskInfo, orders: Orders) -> Orders:
        return replace(orders, opened=incident) if state_of(row).seen_at is None else orders

    return edit


def _closing(closing: Closing) -> Callable[[TaskInfo, Orders], Orders]:
    return lambda _, orders: with_closing(orders, closing)


def _new_task(incident: Incident) -> NewTask:
    return NewTask(
        name=INCIDENT,
        kind=KIND,
        queue=QUEUE,
        key=incident.id,
        args=NO_ORDERS,
        memory=write(IncidentState(incident=incident)),
        cancels_itself=True,
        indexed=True,
        once=True,
    )
