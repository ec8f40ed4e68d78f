"""Services: list, register, show, explain, change, remove, check, mute."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from everpoll.engine.why import Why
from everpoll.errors import ServiceNotFound
from everpoll.monitors.beat_tokens import beat_token, with_token
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.definition import Definition
from everpoll.monitors.info import ServiceInfo, info_of
from everpoll.monitors.last_look import ahead_of_look
from everpoll.monitors.options import ServiceOptions
from everpoll.monitors.service import Service
from everpoll.monitors.service_rows import service_pages
from everpoll.monitors.service_why import why_service
from everpoll.monitors.written_options import OPTIONS, refuse_password, written_options
from everpoll.policy import seconds
from everpoll.policy.uptime import uptime_of
from everpoll.server import cursors
from everpoll.server.actions_log import log_action
from everpoll.server.answers import Reply
from everpoll.server.explaining import WHY
from everpoll.server.mounts import base_of
from everpoll.server.problems import Problem
from everpoll.server.route import Asked, Route
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
from everpoll.server.shapes import After, Limit, Reason
from everpoll.stores.contract import Store, TaskInfo

LIST = "services"
DAY_S = 86_400.0
BARS = 50
"""Looks that a list shows of each service."""
SPANS = ("24h", "7d", "30d", "90d")
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
PAGE_LIMIT = 200
"""Services that a page has at most: each comes with its last looks and a day of figures."""
SCAN_PAGE, SCAN_LIMIT = 1_000, 10_000
"""Services that are read at a time, and in all, for a page of those with one status."""
Span = str | float


class ServicesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which services to list."""

    status: StatusWord | None = None
    limit: Limit = 50
    """A page has at most 200 services, also for a higher limit: `after` continues the list."""
    after: After = None


class ServiceChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a service; what is left out stays, or has its default. Nested ones are as in a configuration file."""

    target: Annotated[str, Meta(min_length=1, max_length=8_192)] | UnsetType = UNSET
    every: Span | UnsetType = UNSET
    timeout: Span | UnsetType = UNSET
    format: str | UnsetType = UNSET
    mapping: dict[str, Any] | UnsetType | None = UNSET
    depends_on: list[str] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    """A secret is written as `${NAME}`, and read from the environment of the workers."""
    breaker: dict[str, Any] | UnsetType | None = UNSET
    backoff: dict[str, Any] | UnsetType | None = UNSET
    alert: dict[str, Any] | UnsetType = UNSET
    conditions: list[str] | UnsetType = UNSET
    fresh: bool | UnsetType = UNSET
    witness: list[str] | UnsetType = UNSET


class NewService(ServiceChange, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A service to register."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    target: Annotated[str, Meta(min_length=1, max_length=8_192)]


class MuteOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to send no alerts."""

    span: Span
    """`"2h"`, or a number of seconds."""
    reason: Reason = ""
    """Why; it is in the log of events."""


async def list_services(asked: Asked) -> ServicePage:
    """Answer `GET /api/services`."""
    query: ServicesQuery = asked.query
    app = asked.serving.app
    store, now = await app.store(), app.services.wall()
    limit, read = min(query.limit, PAGE_LIMIT), 0
    infos: list[ServiceInfo] = []
    after = cursors.read_number(LIST, query.after)
    # With one more row than the page has room for, the last page is known to be the last.
    async for rows in service_pages(store, SCAN_PAGE if query.status else limit + 1, after):
        for row in rows:
            if len(infos) == limit or read == SCAN_LIMIT:
                return ServicePage(items=await _items(store, infos, now), after=cursors.write(LIST, after or 0))
            after, read = row.id, read + 1
            info = info_of(row, now)
            infos += [info] if query.status in {None, str(info.status)} else []
    return ServicePage(items=await _items(store, infos, now), after=None)


async def _items(store: Store, infos: list[ServiceInfo], now: float) -> list[ServiceItem]:
    names = [one.name for one in infos]
    looks = await store.health.last_looks(names, BARS) if names else {}
    known = await store.health.availability(names, now - DAY_S) if names else {}
    return [service_item(one, looks.get(one.name, []), known.get(one.name), now) for one in infos]


async def add_service(asked: Asked) -> Reply:
    """Answer `POST /api/services`."""
    new: NewService = asked.body
    services = asked.serving.app.services
    refuse_password(new.target)
    before = await _definition(asked, new.name)
    definition = with_token(services.define(new.name, new.target, _options(new)), before)
    if before is not None and before != definition:
        raise Problem(409, f"service {new.name!r} is there already, and differs: PATCH changes it")
    if await services.publish([definition]):
        raise _being_removed(new.name)
    await log_action(asked, "service", new.name, "add")
    row = await services.row(new.name)
    detail = service_detail(row, services.wall(), beat_path=_beat_path(asked, row))
    return Reply(detail, 201 if before is None else 200)


def _beat_path(asked: Asked, row: TaskInfo) -> str | None:
    """Return where the service beats, for callers that may write: whoever has the path can beat."""
    token = beat_token(msgspec.convert(row.args, Assignment).definition)
    return None if token is None or asked.role != "write" else f"{base_of(asked.request.scope)}/api/beat/{token}"


async def _definition(asked: Asked, name: str) -> Definition | None:
    try:
        row = await asked.serving.app.services.row(name)
    except ServiceNotFound:
        return None
    if row.cancel_requested:
        raise _being_removed(name)
    return msgspec.convert(row.args, Assignment).definition


def _being_removed(name: str) -> Problem:
    return Problem(409, f"service {name!r} is being removed by a worker: register it when that is done")


async def show_service(asked: Asked) -> ServiceDetail:
    """Answer `GET /api/services/{name}`."""
    services = asked.serving.app.services
    row = await services.row(asked.params["name"])
    return await _detail(asked, row)


async def _detail(asked: Asked, row: TaskInfo) -> ServiceDetail:
    services, name = asked.serving.app.services, row.key or ""
    health, now = (await asked.serving.store()).health, services.wall()
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
        beat_path=_beat_path(asked, row),
    )


async def explain_service(asked: Asked) -> Why:
    """Answer `GET /api/services/{name}/why`."""
    app = asked.serving.app
    return await why_service(await app.store(), await app.services.row(asked.params["name"]))


async def change_service(asked: Asked) -> ServiceDetail:
    """Answer `PATCH /api/services/{name}`."""
    given: ServiceChange = asked.body
    services, name = asked.serving.app.services, asked.params["name"]
    options = _options(given)
    if given.target is not UNSET:
        refuse_password(given.target)

    def edit(one: Assignment) -> Assignment:
        old = one.definition
        target = old.target if given.target is UNSET else given.target
        merged = ServiceOptions(**(_options_of(old) | options))  # type: ignore[typeddict-item]
        return msgspec.structs.replace(one, definition=with_token(services.define(name, target, merged), old))

    if (await services.row(name)).cancel_requested:
        raise _being_removed(name)
    await services.change(name, edit)
    await log_action(asked, "service", name, "change")
    return await _detail(asked, await services.row(name))


async def remove_service(asked: Asked) -> Reply:
    """Answer `DELETE /api/services/{name}`."""
    services = asked.serving.app.services
    name = (await services.row(asked.params["name"])).key or ""
    await Service(services, name).remove()
    await log_action(asked, "service", name, "remove")
    return Reply(None, 204)


async def check_service(asked: Asked) -> ServiceDetail:
    """Answer `POST /api/services/{name}/check`."""
    services, name = asked.serving.app.services, asked.params["name"]
    await Service(services, name).check()
    await log_action(asked, "service", name, "check")
    return await _detail(asked, await services.row(name))


async def mute_service(asked: Asked) -> ServiceDetail:
    """Answer `POST /api/services/{name}/mute`."""
    order: MuteOrder = asked.body
    services, name = asked.serving.app.services, asked.params["name"]
    await Service(services, name).mute(order.span)
    await log_action(
        asked, "service", name, "mute", f"for {order.span}" + (f": {order.reason}" if order.reason else "")
    )
    return await _detail(asked, await services.row(name))


async def unmute_service(asked: Asked) -> ServiceDetail:
    """Answer `POST /api/services/{name}/unmute`."""
    services, name = asked.serving.app.services, asked.params["name"]
    await Service(services, name).unmute()
    await log_action(asked, "service", name, "unmute")
    return await _detail(asked, await services.row(name))


def _options(given: ServiceChange) -> ServiceOptions:
    named = {name: getattr(given, name) for name in OPTIONS}
    return written_options({name: value for name, value in named.items() if value is not UNSET}, OPTIONS)  # type: ignore[return-value]


def _options_of(definition: Definition) -> dict[str, Any]:
    """Return the options that would make this definition again."""
    same = {name: getattr(definition, name) for name in OPTIONS - {"every", "timeout"}}
    return same | {"every": definition.every_s, "timeout": definition.timeout_s}


SERVICE_ROUTES = [
    Route(
        method="GET",
        path="/api/services",
        noun="services",
        summary="List services, newest first, with their last looks and their uptime.",
        handler=list_services,
        query=ServicesQuery,
        answer=ServicePage,
        example={"items": [SERVICE], "after": None},
    ),
    Route(
        method="POST",
        path="/api/services",
        noun="services",
        summary='Register a service; it is looked at within 5 s. The target "beat:" makes a token. 409: it differs.',
        handler=add_service,
        body=NewService,
        body_example={"name": "billing", "target": "https://billing.internal/health", "every": "30s"},
        answer=ServiceDetail,
        status=201,
        also=(200,),
        problems=(409,),
        example=SERVICE_DETAIL,
        access="write",
    ),
    Route(
        method="GET",
        path="/api/services/{name}",
        noun="services",
        summary="Show everything about a service.",
        handler=show_service,
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/api/services/{name}/why",
        noun="services",
        summary="Say why a service is as it is, with the evidence.",
        handler=explain_service,
        answer=Why,
        example=WHY | {"verdict": "billing has been down for 4m: connection refused."},
        problems=(404,),
    ),
    Route(
        method="PATCH",
        path="/api/services/{name}",
        noun="services",
        summary="Change options of a service; another target is looked at at once.",
        handler=change_service,
        body=ServiceChange,
        body_example={"every": "10s"},
        answer=ServiceDetail,
        example=SERVICE_DETAIL | {"every_s": 10.0},
        problems=(404, 409),
        access="write",
    ),
    Route(
        method="DELETE",
        path="/api/services/{name}",
        noun="services",
        summary="Look at a service no more, close its incidents and forget its records; a worker does it.",
        handler=remove_service,
        status=204,
        problems=(404,),
        access="write",
    ),
    Route(
        method="POST",
        path="/api/services/{name}/check",
        noun="services",
        summary="Look at a service now, also while its breaker is open. 504: no worker did.",
        handler=check_service,
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404, 504),
        access="write",
        limit_s=None,
    ),
    Route(
        method="POST",
        path="/api/services/{name}/mute",
        noun="services",
        summary="Send no alerts about a service for a while; incidents are recorded all the same.",
        handler=mute_service,
        body=MuteOrder,
        body_example={"span": "2h", "reason": "the new release is rolled out"},
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404,),
        access="write",
    ),
    Route(
        method="POST",
        path="/api/services/{name}/unmute",
        noun="services",
        summary="Send alerts about a service again.",
        handler=unmute_service,
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404,),
        access="write",
    ),
]
