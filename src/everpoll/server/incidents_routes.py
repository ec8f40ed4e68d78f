"""Incidents and maintenance windows."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from everpoll.http.stored_secrets import without_secrets
from everpoll.monitors.alerts.incidents import IncidentInfo
from everpoll.monitors.alerts.maintenance_windows import PlannedWindow
from everpoll.monitors.maintenance import DAYS, Window, once, weekly
from everpoll.monitors.report import Status
from everpoll.server import cursors
from everpoll.server.answers import Reply
from everpoll.server.problems import Problem
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import listing, order, removal
from everpoll.server.shapes import After, Limit, Page, Reason, instant, instant_example

LIST = "incidents"
_WORDS: dict[str, bool | None] = {"open": True, "past": False, "all": None}


class IncidentsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which incidents to list."""

    state: Literal["open", "past", "all"] = "open"
    service: str | None = None
    limit: Limit = 50
    after: After = None


class IncidentItem(Struct, frozen=True, kw_only=True, gc=False):
    """An incident."""

    id: str
    service: str
    dependency: str | None
    """The dependency; null: the service itself."""
    status: Literal["up", "degraded", "down", "unknown"]
    error: str | None
    is_open: bool
    since: datetime | None
    """When the first of the failed looks was."""
    opened_at: datetime | None
    closed_at: datetime | None
    closed_why: str | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    alerted: dict[str, datetime | None]
    """The channels that were alerted, and when."""
    reminders: int
    held_by: list[str]
    waits: str


class IncidentPage(Page, frozen=True, kw_only=True):
    """Incidents, newest first."""

    items: list[IncidentItem]
    after: str | None


class AckOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """The operator that acknowledges the incident."""

    by: Annotated[str, Meta(max_length=200)] = ""


class NewWindow(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A window: from `starts_at` to `ends_at`, or every week on `days` at the time `at`, for the duration `lasting`."""

    id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    days: list[str] | None = None
    at: str | None = None
    lasting: str | float | None = None
    zone: str = "UTC"
    services: list[str] = []
    """None: all."""
    reason: Reason = ""


class WindowItem(Struct, frozen=True, kw_only=True):
    """A maintenance window."""

    id: str
    services: list[str]
    reason: str
    starts_at: datetime | None
    ends_at: datetime | None
    days: list[str]
    at: str | None
    lasts_s: float
    zone: str
    is_active: bool


class WindowPage(Page, frozen=True, kw_only=True):
    """Maintenance windows, by id."""

    items: list[WindowItem]
    after: str | None


class WindowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which window."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]


async def list_incidents(call: ApiCall) -> IncidentPage:
    """Answer `GET /api/incidents`."""
    query: IncidentsQuery = call.query
    incidents = call.serving.app.services.incidents
    behind = cursors.read_number(LIST, query.after)
    found, after = await incidents.page(_WORDS[query.state], query.service, query.limit, behind)
    return IncidentPage(
        items=[incident_item(one) for one in found], after=None if after is None else cursors.write(LIST, after)
    )


async def acknowledge_incident(call: ApiCall) -> IncidentItem:
    """Answer `POST /api/incidents/{id}/ack`."""
    order: AckOrder = call.body or AckOrder()
    incidents = call.serving.app.services.incidents
    info = await incidents.get(call.params["id"])
    if not info.is_open:
        raise Problem(409, f"incident {info.id} is over already: {info.closed_why}")
    known = await incidents.acknowledge(info.id, order.by or call.by, actor=call.by)
    return incident_item(known)


async def list_windows(call: ApiCall) -> WindowPage:
    """Answer `GET /api/maintenance`."""
    services = call.serving.app.services
    now = services.wall()
    return WindowPage(items=[_window(one, now) for one in await services.maintenance.list()], after=None)


async def add_window(call: ApiCall) -> Reply:
    """Answer `POST /api/maintenance`."""
    new: NewWindow = call.body
    services = call.serving.app.services
    window = _planned(new)
    window_id = await services.maintenance.add(window, new.id, by=call.by)
    return Reply(_window(PlannedWindow(window_id, window), services.wall()), 201)


async def remove_window(call: ApiCall) -> Reply:
    """Answer `DELETE /api/maintenance`."""
    query: WindowQuery = call.query
    if not await call.serving.app.services.maintenance.remove(query.id, by=call.by):
        raise Problem(404, f"there is no maintenance window {query.id!r}")
    return Reply(None, 204)


def _planned(new: NewWindow) -> Window:
    is_weekly = new.days is not None or new.at is not None or new.lasting is not None
    if is_weekly and (new.starts_at is not None or new.ends_at is not None):
        raise Problem(422, "write starts_at and ends_at, or days, at and lasting", argument="days")
    if is_weekly:
        return weekly(new.days or [], new.at or "", new.lasting or 0, new.zone, new.services, new.reason)
    return once(new.starts_at, new.ends_at, new.services, new.reason)


def _window(planned: PlannedWindow, now: float) -> WindowItem:
    window = planned.window
    return WindowItem(
        id=planned.id,
        services=list(window.services),
        reason=window.reason,
        starts_at=instant(window.starts_at),
        ends_at=instant(window.ends_at),
        days=[DAYS[number] for number in window.days],
        at=f"{window.minute // 60:02}:{window.minute % 60:02}" if window.days else None,
        lasts_s=window.lasts_s,
        zone=window.zone,
        is_active=window.active_until(now) is not None,
    )


def incident_item(info: IncidentInfo) -> IncidentItem:
    """Return an incident for the API."""
    return IncidentItem(
        id=info.id,
        service=info.service,
        dependency=without_secrets(info.dependency),
        status=Status(info.status).value,
        error=without_secrets(info.error),
        is_open=info.is_open,
        since=instant(info.since),
        opened_at=instant(info.opened_at),
        closed_at=instant(info.closed_at),
        closed_why=info.closed_why,
        acknowledged_at=instant(info.acknowledged_at),
        acknowledged_by=info.acknowledged_by,
        alerted={channel: instant(at) for channel, at in info.alerted.items()},
        reminders=info.reminders,
        held_by=list(info.held_by),
        waits=info.waits,
    )


INCIDENT: dict[str, Any] = {
    "id": "billing-1767323045",
    "service": "billing",
    "dependency": None,
    "status": "down",
    "error": "connection refused",
    "is_open": True,
    "since": instant_example(0),
    "opened_at": instant_example(30),
    "closed_at": None,
    "closed_why": None,
    "acknowledged_at": None,
    "acknowledged_by": None,
    "alerted": {"ops": instant_example(90)},
    "reminders": 0,
    "held_by": [],
    "waits": "nothing",
}
WINDOW: dict[str, Any] = {
    "id": "a1b2c3d4",
    "services": ["billing"],
    "reason": "new database",
    "starts_at": instant_example(0),
    "ends_at": instant_example(3600),
    "days": [],
    "at": None,
    "lasts_s": 0.0,
    "zone": "UTC",
    "is_active": True,
}

INCIDENT_ROUTES = [
    listing(
        path="/api/incidents",
        noun="services",
        summary="List incidents, newest first: open ones, past ones, or all.",
        handler=list_incidents,
        query=IncidentsQuery,
        answer=IncidentPage,
        item=INCIDENT,
    ),
    order(
        path="/api/incidents/{id}/ack",
        noun="services",
        summary="Acknowledge an incident: no alerts and reminders from now on. 409: it is over.",
        handler=acknowledge_incident,
        body=AckOrder,
        needs_body=False,
        body_example={"by": "anna"},
        answer=IncidentItem,
        example=INCIDENT | {"acknowledged_by": "anna", "acknowledged_at": instant_example(120)},
        problems=(404, 409),
    ),
    listing(
        path="/api/maintenance",
        noun="services",
        summary="List maintenance windows, in which incidents do not alert.",
        handler=list_windows,
        answer=WindowPage,
        item=WINDOW,
    ),
    order(
        path="/api/maintenance",
        noun="services",
        summary="Plan a maintenance window; one with the same id is replaced.",
        handler=add_window,
        body=NewWindow,
        body_example={"starts_at": instant_example(0), "ends_at": instant_example(3600), "services": ["billing"]},
        answer=WindowItem,
        status=201,
        example=WINDOW,
    ),
    removal(
        path="/api/maintenance",
        noun="services",
        summary="Remove a maintenance window.",
        handler=remove_window,
        query=WindowQuery,
    ),
]
