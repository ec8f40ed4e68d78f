"""Orders about services: register, change, remove, check, mute, pause."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from everpoll.engine.actors import action
from everpoll.errors import ServiceNotFound
from everpoll.monitors.beat_tokens import with_token
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.definition import Definition
from everpoll.monitors.options import ServiceOptions
from everpoll.monitors.service import Service
from everpoll.monitors.written_options import OPTIONS, refuse_password, written_options
from everpoll.server.answers import Reply
from everpoll.server.problems import Problem
from everpoll.server.route import ApiCall, Route
from everpoll.server.route_kinds import order, removal
from everpoll.server.service_shapes import (
    SERVICE_DETAIL,
    ServiceDetail,
    service_detail,
)
from everpoll.server.services_routes import beat_path, read_detail
from everpoll.server.shapes import Reason, instant_example

Span = str | float


class ServiceChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a service; missing ones stay, or have their defaults. Nested ones are as in a configuration file."""

    target: Annotated[str, Meta(min_length=1, max_length=8_192)] | UnsetType = UNSET
    every: Span | UnsetType = UNSET
    timeout: Span | UnsetType = UNSET
    format: str | UnsetType = UNSET
    mapping: dict[str, Any] | UnsetType | None = UNSET
    depends_on: list[str] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    """Write a secret as `${NAME}`: workers read it from their environment."""
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
    """The reason, which is written to the log."""


class ServicePauseOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of a pause."""

    reason: Reason = ""


async def add_service(call: ApiCall) -> Reply:
    """Answer `POST /api/services`."""
    new: NewService = call.body
    services = call.serving.app.services
    refuse_password(new.target)
    before = await _definition(call, new.name)
    definition = with_token(services.define(new.name, new.target, _options(new)), before)
    if before is not None and before != definition:
        raise Problem(409, f"service {new.name!r} exists already, with other options: PATCH changes it")
    if await services.publish([definition], by=call.by):
        raise _being_removed(new.name)
    row = await services.row(new.name)
    detail = service_detail(row, services.wall(), beat_path=beat_path(call, row))
    return Reply(detail, 201 if before is None else 200)


async def _definition(call: ApiCall, name: str) -> Definition | None:
    try:
        row = await call.serving.app.services.row(name)
    except ServiceNotFound:
        return None
    if row.cancel_requested:
        raise _being_removed(name)
    return msgspec.convert(row.args, Assignment).definition


def _being_removed(name: str) -> Problem:
    return Problem(409, f"a worker is removing service {name!r}: register it when that is done")


async def change_service(call: ApiCall) -> ServiceDetail:
    """Answer `PATCH /api/services/{name}`."""
    given: ServiceChange = call.body
    services, name = call.serving.app.services, call.params["name"]
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
    await services.change(name, edit, action("change", call.by))
    return await read_detail(call, await services.row(name))


async def remove_service(call: ApiCall) -> Reply:
    """Answer `DELETE /api/services/{name}`."""
    services = call.serving.app.services
    name = (await services.row(call.params["name"])).key or ""
    await Service(services, name).remove(by=call.by)
    return Reply(None, 204)


async def check_service(call: ApiCall) -> ServiceDetail:
    """Answer `POST /api/services/{name}/check`."""
    services, name = call.serving.app.services, call.params["name"]
    await Service(services, name).check(by=call.by)
    return await read_detail(call, await services.row(name))


async def mute_service(call: ApiCall) -> ServiceDetail:
    """Answer `POST /api/services/{name}/mute`."""
    order: MuteOrder = call.body
    services, name = call.serving.app.services, call.params["name"]
    await Service(services, name).mute(order.span, order.reason, by=call.by)
    return await read_detail(call, await services.row(name))


async def unmute_service(call: ApiCall) -> ServiceDetail:
    """Answer `POST /api/services/{name}/unmute`."""
    services, name = call.serving.app.services, call.params["name"]
    await Service(services, name).unmute(by=call.by)
    return await read_detail(call, await services.row(name))


async def pause_service(call: ApiCall) -> ServiceDetail:
    """Answer `POST /api/services/{name}/pause`."""
    order: ServicePauseOrder = call.body or ServicePauseOrder()
    services, name = call.serving.app.services, call.params["name"]
    await Service(services, name).pause(order.reason, by=call.by)
    return await read_detail(call, await services.row(name))


async def resume_service(call: ApiCall) -> ServiceDetail:
    """Answer `POST /api/services/{name}/resume`."""
    services, name = call.serving.app.services, call.params["name"]
    if not await Service(services, name).resume(by=call.by):
        raise Problem(409, f"service {name!r} is not paused")
    return await read_detail(call, await services.row(name))


def _options(given: ServiceChange) -> ServiceOptions:
    named = {name: getattr(given, name) for name in OPTIONS}
    return written_options({name: value for name, value in named.items() if value is not UNSET}, OPTIONS)  # type: ignore[return-value]


def _options_of(definition: Definition) -> dict[str, Any]:
    """Return the options from which this definition can be made again."""
    same = {name: getattr(definition, name) for name in OPTIONS - {"every", "timeout"}}
    return same | {"every": definition.every_s, "timeout": definition.timeout_s}


_PAUSED = {
    "status": "paused",
    "healthy": None,
    "due_at": None,
    "waits": "paused",
    "paused": {"reason": "the data center is being moved", "by": "HTTP from 10.1.2.3", "at": instant_example(0)},
}

SERVICE_ORDER_ROUTES = [
    order(
        path="/api/services",
        noun="services",
        summary='Register a service; a worker looks at it within 5 s. "beat:" makes a token. 409: one differs.',
        handler=add_service,
        body=NewService,
        body_example={"name": "billing", "target": "https://billing.internal/health", "every": "30s"},
        answer=ServiceDetail,
        status=201,
        also=(200,),
        problems=(409,),
        example=SERVICE_DETAIL,
    ),
    Route(
        method="PATCH",
        path="/api/services/{name}",
        noun="services",
        summary="Change options of a service; a worker looks at a new target at once.",
        handler=change_service,
        body=ServiceChange,
        body_example={"every": "10s"},
        answer=ServiceDetail,
        example=SERVICE_DETAIL | {"every_s": 10.0},
        problems=(404, 409),
        access="write",
    ),
    removal(
        path="/api/services/{name}",
        noun="services",
        summary="Remove a service: a worker closes its incidents and deletes its records.",
        handler=remove_service,
    ),
    order(
        path="/api/services/{name}/check",
        noun="services",
        summary="Look at a service now, even if its breaker is open. 409: it is paused. 504: no worker looked in time.",
        handler=check_service,
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404, 409, 504),
        limit_s=None,
    ),
    order(
        path="/api/services/{name}/mute",
        noun="services",
        summary="Send no alerts about a service for a while; incidents are still recorded.",
        handler=mute_service,
        body=MuteOrder,
        body_example={"span": "2h", "reason": "the new release is rolled out"},
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404,),
    ),
    order(
        path="/api/services/{name}/unmute",
        noun="services",
        summary="Send alerts about a service again.",
        handler=unmute_service,
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404,),
    ),
    order(
        path="/api/services/{name}/pause",
        noun="services",
        summary="Pause a service: no worker looks at it until it is resumed, and its open incidents are closed.",
        handler=pause_service,
        body=ServicePauseOrder,
        needs_body=False,
        body_example={"reason": "the data center is being moved"},
        answer=ServiceDetail,
        example=SERVICE_DETAIL | _PAUSED,
        problems=(404,),
    ),
    order(
        path="/api/services/{name}/resume",
        noun="services",
        summary="Resume a service: workers look at it again, at once. 409: it is not paused.",
        handler=resume_service,
        answer=ServiceDetail,
        example=SERVICE_DETAIL,
        problems=(404, 409),
    ),
]
