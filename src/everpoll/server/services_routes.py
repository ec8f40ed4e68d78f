"""Services: list, show, explain."""

import msgspec
from msgspec import Struct

from everpoll.engine.why import Why
from everpoll.monitors.beat_tokens import beat_token
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.control import shown_status
from everpoll.monitors.info import ServiceInfo, info_of
from everpoll.monitors.last_look import ahead_of_look
from everpoll.monitors.service_rows import service_pages
from everpoll.monitors.service_why import why_service
from everpoll.policy import seconds
from everpoll.policy.uptime import uptime_of
from everpoll.server import cursors
from everpoll.server.explaining import explanation
from everpoll.server.mounts import base_of
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import detail, listing
from everpoll.server.service_shapes import (
    SERVICE,
    SERVICE_DETAIL,
    ServiceDetail,
    ServiceItem,
    ServicePage,
    StatusWord,
    look_item,
    service_detail,
    service_item,
    uptime_shown,
)
from everpoll.server.shapes import After, Limit
from everpoll.stores.contract import Store, TaskInfo

LIST = "services"
DAY_S = 86_400.0
BARS = 50
"""How many looks of each service a list has."""
SPANS = ("24h", "7d", "30d", "90d")
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
PAGE_LIMIT = 200
"""How many services a page has: each comes with its last looks and the figures of a day."""
SCAN_PAGE, SCAN_LIMIT = 1_000, 10_000
"""How many services are read at a time, and in all, for a page of services with one status."""


class ServicesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which services to list."""

    status: StatusWord | None = None
    limit: Limit = 50
    """A page has at most 200 services, even with a higher limit: `after` continues the list."""
    after: After = None


async def list_services(call: ApiCall) -> ServicePage:
    """Answer `GET /api/services`."""
    query: ServicesQuery = call.query
    app = call.serving.app
    store, now = await app.store(), app.services.wall()
    limit, read = min(query.limit, PAGE_LIMIT), 0
    infos: list[ServiceInfo] = []
    after = cursors.read_number(LIST, query.after)
    # Read one more row than the page has, to know whether it is the last page.
    async for rows in service_pages(store, SCAN_PAGE if query.status else limit + 1, after):
        for row in rows:
            if len(infos) == limit or read == SCAN_LIMIT:
                return ServicePage(items=await _items(store, infos, now), after=cursors.write(LIST, after or 0))
            after, read = row.id, read + 1
            is_paused = row.assignment.paused is not None
            status = shown_status(row.definition, row.control, now, is_paused=is_paused)
            if query.status is None or query.status == str(status):
                infos.append(info_of(row, now))
    return ServicePage(items=await _items(store, infos, now), after=None)


async def _items(store: Store, infos: list[ServiceInfo], now: float) -> list[ServiceItem]:
    names = [one.name for one in infos]
    looks = await store.health.last_looks(names, BARS) if names else {}
    known = await store.health.availability(names, now - DAY_S) if names else {}
    return [service_item(one, looks.get(one.name, []), known.get(one.name), now) for one in infos]


def beat_path(call: ApiCall, row: TaskInfo) -> str | None:
    """Return the path for heartbeats, for callers that may write: any caller with the path can use it."""
    token = beat_token(msgspec.convert(row.args, Assignment).definition)
    return None if token is None or call.role != "write" else f"{base_of(call.request.scope)}/api/beat/{token}"


async def show_service(call: ApiCall) -> ServiceDetail:
    """Answer `GET /api/services/{name}`."""
    services = call.serving.app.services
    row = await services.row(call.params["name"])
    return await read_detail(call, row)


async def read_detail(call: ApiCall, row: TaskInfo) -> ServiceDetail:
    """Return everything about a service, its records of 90 days included."""
    services, name = call.serving.app.services, row.key or ""
    health, now = (await call.serving.store()).health, services.wall()
    rollups = {span: await health.summary(name, now - seconds(span), now) for span in SPANS}
    looks = await health.looks(name, 0.0, now + 1.0, BARS)
    ahead = ahead_of_look(looks[0] if looks else None, now)
    uptimes = {
        span: uptime_shown(uptime_of(rollup, round(seconds(span) * 1000), ahead)) for span, rollup in rollups.items()
    }
    return service_detail(
        row,
        now,
        uptime=uptimes,
        uptime_24h=uptimes[SPANS[0]],
        latencies_24h_ms={word: rollups[SPANS[0]].latency_ms(share) for word, share in PERCENTILES.items()},
        looks=[look_item(look) for look in looks],
        beat_path=beat_path(call, row),
    )


async def explain_service(call: ApiCall) -> Why:
    """Answer `GET /api/services/{name}/why`."""
    app = call.serving.app
    return await why_service(await app.store(), await app.services.row(call.params["name"]))


SERVICE_ROUTES = [
    listing(
        path="/api/services",
        noun="services",
        summary="List services, newest first, with their last looks and their uptime.",
        handler=list_services,
        query=ServicesQuery,
        answer=ServicePage,
        item=SERVICE,
    ),
    detail(
        path="/api/services/{name}",
        noun="services",
        summary="Show everything about a service.",
        handler=show_service,
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
    ),
    explanation(
        path="/api/services/{name}/why",
        noun="services",
        summary="Explain the state of a service, with the evidence.",
        handler=explain_service,
        example={"verdict": "billing has been down for 4m: connection refused."},
    ),
]
