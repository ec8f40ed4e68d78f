"""Incidents: lists open and past incidents for operators, and acknowledges them.

Promises: an acknowledged incident is shown as acknowledged at once. An incident whose opening was lost is never shown.
Past incidents are kept as long as the app keeps its history.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.engine.actors import ACTOR_LIMIT, action
from everpoll.errors import IncidentNotFound
from everpoll.monitors.alerts.incident_row import (
    KIND,
    IncidentState,
    Orders,
    orders_of,
    read_orders,
    read_state,
    state_of,
)
from everpoll.monitors.alerts.incident_rows import IncidentRows
from everpoll.monitors.incident import Incident, acknowledge
from everpoll.monitors.report import Status
from everpoll.stores.contract import Store, TaskFilter, TaskInfo

_PAGE, _SMALL_PAGE = 500, 50
_PAGES = 10


class IncidentInfo(Struct, frozen=True, kw_only=True, gc=False):
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
    """The failed roots that hold its alert back, or held it back."""
    waits: str
    """What the next step waits for: delay, mute, maintenance, root, reminder, close, nothing."""

    @property
    def is_open(self) -> bool:
        """Whether the incident is open."""
        return self.closed_at is None


_Page = tuple[list[tuple[int, IncidentInfo | None]], int | None]
"""Incidents with the ids of their rows, newest first, and the id after which the next page begins."""
_Rows = Callable[[int, int | None], Awaitable[_Page]]


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
        if limit < 1:
            return ()
        store = await self._store()

        def is_wanted(info: IncidentInfo) -> bool:
            return service in {None, info.service} and open in {None, info.is_open}

        # The incidents of one service may be far apart: small pages would need thousands of queries.
        size = _PAGE if service is not None else min(limit, _PAGE)
        found: dict[int, IncidentInfo] = {}
        # Read live ones first: an incident that ends between the two queries is then in both lists, never in none.
        if open is not False:
            found |= await _newest(partial(_live_rows, store), is_wanted, size, limit)
        if open is not True:
            found |= await _newest(partial(_ended_rows, store, service), is_wanted, size, limit)
        return tuple(found[task_id] for task_id in sorted(found, reverse=True))[:limit]

    async def count_open(self) -> int:
        """Return how many incidents are open."""
        rows, after, count = partial(_live_rows, await self._store()), None, 0
        while True:
            page, after = await rows(_PAGE, after)
            count += sum(info is not None and info.is_open for _, info in page)
            if after is None:
                return count

    async def page(
        self,
        open: bool | None,  # noqa: A002 - the word of the API
        service: str | None,
        limit: int,
        after: int | None = None,
    ) -> tuple[tuple[IncidentInfo, ...], int | None]:
        """Return a page of incidents, newest first, and the id after which the next page begins; None at the end.

        A page may be short although more pages follow: one call reads a bounded number of rows.
        """
        store = await self._store()
        # Open incidents have live rows, and past ones ended rows: reading the others as well could take many pages.
        ended = partial(_all_rows if open is None else _ended_rows, store, service)
        rows = partial(_live_rows, store) if open is True else ended
        # Without a service, nearly every row is one to show.
        size = _PAGE if service is not None else max(_SMALL_PAGE, min(limit, _PAGE))
        found: list[IncidentInfo] = []
        for _ in range(_PAGES):
            page, behind = await rows(size, after)
            for task_id, info in page:
                after = task_id
                if info is not None and service in {None, info.service} and open in {None, info.is_open}:
                    found.append(info)
                if len(found) == limit:
                    return tuple(found), after
            if behind is None:
                return tuple(found), None
            after = behind
        return tuple(found), after

    async def get(self, incident_id: str) -> IncidentInfo:
        """Return one incident; raise `IncidentNotFound` if no incident has that id."""
        row = await (await self._store()).find(KIND, incident_id)
        info = None if row is None else _info(row)
        if info is None:
            raise IncidentNotFound(f"no incident has the id {incident_id!r}: `everpoll services incidents` lists them")
        return info

    async def acknowledge(self, incident_id: str, by: str, *, actor: str = "") -> IncidentInfo:
        """Note that the operator `by` knows about the incident: no alerts and reminders from now on.

        The first acknowledgement stays. An incident that is over does not change. The log names `actor`, by default
        `by`.
        """
        await self.get(incident_id)
        now = self._wall()

        def edit(row: TaskInfo, orders: Orders) -> Orders:
            known = acknowledge(_incident(state_of(row), orders), by, now)
            return replace(orders, acknowledged_at=known.acknowledged_at, acknowledged_by=known.acknowledged_by)

        note = action("acknowledge", actor or str(by)[:ACTOR_LIMIT])  # `acknowledge` refuses what is not text
        await IncidentRows(await self._store()).order(incident_id, edit, note)
        return await self.get(incident_id)


async def _newest(
    rows: _Rows, is_wanted: Callable[[IncidentInfo], bool], size: int, limit: int
) -> dict[int, IncidentInfo]:
    """Return at least `limit` of the newest wanted incidents, by their ids; all of them if there are fewer."""
    found: dict[int, IncidentInfo] = {}
    after: int | None = None
    while True:
        page, after = await rows(size, after)
        found |= {task_id: info for task_id, info in page if info is not None and is_wanted(info)}
        if after is None or len(found) >= limit:
            return found


async def _live_rows(store: Store, size: int, after: int | None) -> _Page:
    """Return a page of the incidents whose tasks are live, all read in one snapshot."""
    rows = await store.live(KIND, size, after)
    page = [(row.id, _live_info(read_orders(row.args), read_state(row.memory))) for row in rows if row.memory]
    return page, rows[-1].id if len(rows) == size else None


async def _ended_rows(store: Store, service: str | None, size: int, after: int | None) -> _Page:
    wanted = TaskFilter(kind=KIND, indexed=True, state="done", key_start=_key_start(service))
    page = await store.tasks(wanted, size, after)
    return [(row.id, _info(row)) for row in page.tasks], page.after


async def _all_rows(store: Store, service: str | None, size: int, after: int | None) -> _Page:
    page = await store.tasks(TaskFilter(kind=KIND, indexed=True, key_start=_key_start(service)), size, after)
    return [(row.id, _info(row)) for row in page.tasks], page.after


def _key_start(service: str | None) -> str | None:
    """Return the beginning of the ids of a service's incidents; ids of a service "a:b" begin like those of "a"."""
    return None if service is None else f"{service}:"


def _info(row: TaskInfo) -> IncidentInfo | None:
    """Return the incident of a row; None if it was never open."""
    if row.state == "canceled" or row.memory is None:
        return None
    if row.state == "done" and row.result is not None:
        return _shown(msgspec.convert(row.result, Incident))
    return _live_info(orders_of(row), state_of(row))


def _live_info(orders: Orders, state: IncidentState) -> IncidentInfo | None:
    return None if state.seen_at is None else _shown(_incident(state, orders))


def _incident(state: IncidentState, orders: Orders) -> Incident:
    """Return the incident with its acknowledgement, which its next step will store."""
    incident = state.incident
    if orders.acknowledged_at is None:
        return incident
    return acknowledge(incident, orders.acknowledged_by, orders.acknowledged_at)


def _shown(incident: Incident) -> IncidentInfo:
    # Field by field: a page has up to a thousand, and a loop over the names takes three times as long.
    return IncidentInfo(
        id=incident.id,
        service=incident.service,
        dependency=incident.dependency,
        status=incident.status,
        error=incident.error,
        since=incident.since,
        opened_at=incident.opened_at,
        closed_at=incident.closed_at,
        closed_why=incident.closed_why,
        acknowledged_at=incident.acknowledged_at,
        acknowledged_by=incident.acknowledged_by,
        alerted=incident.sent,
        reminders=incident.reminders,
        held_by=incident.held_by,
        waits=incident.waits,
    )
