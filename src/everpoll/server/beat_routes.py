"""Heartbeats of services that call everpoll."""

from msgspec import Struct

from everpoll.server.route import ApiCall, Handler, Method, Route


class BeatQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The status of the service: up, degraded or down."""

    status: str = "up"


class BeatCounted(Struct, frozen=True):
    """A heartbeat was counted."""

    ok: bool = True


async def count_beat(call: ApiCall) -> BeatCounted:
    """Answer `GET /api/beat/{token}`."""
    query: BeatQuery = call.query
    await call.serving.beats.beat(call.params["token"], query.status)
    call.serving.changes.changed("services")
    return BeatCounted()


async def count_posted_beat(call: ApiCall) -> BeatCounted:
    """Answer `POST /api/beat/{token}`."""
    return await count_beat(call)


def _route(method: Method, summary: str, handler: Handler) -> Route:
    return Route(
        method=method,
        path="/api/beat/{token}",
        noun="services",
        summary=summary,
        handler=handler,
        query=BeatQuery,
        answer=BeatCounted,
        example={"ok": True},
        problems=(404,),
        access="public",
    )


BEAT_ROUTES = [
    _route("GET", "Record a heartbeat of the service with the target `beat:TOKEN`.", count_beat),
    _route("POST", "Record a heartbeat, as GET does.", count_posted_beat),
]
