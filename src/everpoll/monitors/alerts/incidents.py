"""Incidents: open and past ones, as operators see them, and what they may do about one.

Promises: an incident that is acknowledged is shown so at once. Incidents that were opened by a decision that was lost
are never shown. Past ones are there for as long as the app keeps its history.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.errors import IncidentNotFound
from everpoll.monitors.alerts.incident_row import KIND, IncidentState, Orders, orders_of, state_of
from everpoll.monitors.alerts.incident_rows import IncidentRows
from everpoll.monitors.incident import Incident, acknowledge
from everpoll.monitors.report import Status
from everpoll.stores.contract import Store, TaskFilter, TaskInfo, TaskState

_PAGE = 500
_PAGES = 10
# Twice, since a row that is leased while the running ones are read would be in neither.
_LIVE: tuple[TaskState, ...] = ("queued", "running", "queued")


class IncidentInfo(Struct, frozen=True, kw_only=True):
    """One incident. Instants are seconds since the epoch."""

    id: str
    service: str
    dependency: str | None
    """None: the service itself."""
    status: Status
    error: str | None
    since: float
    """When the first of the failed looks was."""
    opened_at: float
    closed_at: float | None
    closed_why: str | None
    acknowledged_at: float | None
    acknowledged_by: str | None
    alerted: dict[str, float]
    """The channels that were alerted, and when."""
    reminders: int
    held_by: tuple[str, ...]
    """The failed roots that hold its alert back, or have."""
    waits: str
    """What its next step waits for: delay, mute, maintenance, root, reminder, close, nothing."""

    @property
    def is_open(self) -> bool:
        """It is not over."""
        return self.closed_at is None


class Incidents:
    """The incidents of all services: `app.services.incidents`."""

    def __init__(self, store: Callable[[], Awaitable[Store]], wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall

    async def list(
        self,
        open: bool | None = True,  # noqa: A002 - the word of the API
        service: str | None = None,
        limit: int = 100,
    ) -> tuple[IncidentInfo, ...]:
        """Return incidents, newest first: open ones, past ones (`open=False`), or both (`open=None`)."""
        store = await self._store()
        found: dict[int, IncidentInfo] = {}
        for state in () if open is False else _LIVE:
            await self._collect(store, state, found, service, limit)
        if open is not True:
            await self._collect(store, "done", found, service, limit)
        shown = [found[task_id] for task_id in sorted(found, reverse=True)]
        return tuple(one for one in shown if open is None or one.is_open is open)[:limit]

    async def page(
        self,
        open: bool | None,  # noqa: A002 - the word of the API
        service: str | None,
        limit: int,
        after: int | None = None,
    ) -> tuple[tuple[IncidentInfo, ...], int | None]:
        """Return a page of incidents, newest first, and the number that the list goes on behind; None at its end.

        A page may be short although the list goes on: one call looks at a bounded number of incidents.
        """
        store = await self._store()
        if open is True:
            # Few at any time, and found without looking at those of the past.
            return await self.list(True, service, limit), None
        found: list[IncidentInfo] = []
        for _ in range(_PAGES):
            page = await store.tasks(TaskFilter(kind=KIND, indexed=True), _PAGE, after)
            for row in page.tasks:
                info = _info(row)
                after = row.id
                if info is not None and service in {None, info.service} and open in {None, info.is_open}:
                    found.append(info)
                if len(found) == limit:
                    return tuple(found), after
            if page.after is None:
                return tuple(found), None
        return tuple(found), after

    async def get(self, incident_id: str) -> IncidentInfo:
        """Return one incident; raise `IncidentNotFound` where there is none of that id."""
        row = await (await self._store()).find(KIND, incident_id)
        info = None if row is None else _info(row)
        if info is None:
            raise IncidentNotFound(f"no incident has the id {incident_id!r}: `everpoll services incidents` lists them")
        return info

    async def acknowledge(self, incident_id: str, by: str) -> IncidentInfo:
        """Note that an operator, named `by`, has taken notice: no alerts and reminders from now on.

        The first one stays. An incident that is over stays as it is.
        """
        await self.get(incident_id)
        now = self._wall()

        def edit(row: TaskInfo, orders: Orders) -> Orders:
            known = acknowledge(_incident(state_of(row), orders), by, now)
            return replace(orders, acknowledged_at=known.acknowledged_at, acknowledged_by=known.acknowledged_by)

        await IncidentRows(await self._store()).order(incident_id, edit)
        return await self.get(incident_id)

    async def _collect(
        self, store: Store, state: TaskState, found: dict[int, IncidentInfo], service: str | None, limit: int
    ) -> None:
        after: int | None = None
        count = 0
        while True:
            # Those of one service may be far apart: small pages would be thousands of questions.
            size = _PAGE if service is not None else min(limit, _PAGE)
            page = await store.tasks(TaskFilter(kind=KIND, indexed=True, state=state), size, after)
            for row in page.tasks:
                info = _info(row)
                if info is not None and service in {None, info.service}:
                    found[row.id] = info
                    count += 1
            if page.after is None or count >= limit:
                return
            after = page.after


def _info(row: TaskInfo) -> IncidentInfo | None:
    """The incident of a row; None where it was never open."""
    if row.state == "canceled" or row.memory is None:
        return None
    if row.state == "done" and row.result is not None:
        return _shown(msgspec.convert(row.result, Incident))
    state, orders = state_of(row), orders_of(row)
    return None if state.seen_at is None else _shown(_incident(state, orders))


def _incident(state: IncidentState, orders: Orders) -> Incident:
    """The incident with what its next step will know."""
    incident = state.incident
    if orders.acknowledged_at is None:
        return incident
    return acknowledge(incident, orders.acknowledged_by, orders.acknowledged_at)


def _shown(incident: Incident) -> IncidentInfo:
    fields: dict[str, Any] = {
        name: getattr(incident, name) for name in IncidentInfo.__struct_fields__ if name != "alerted"
    }
    return IncidentInfo(alerted=incident.sent, **fields)
