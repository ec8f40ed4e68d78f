"""Heartbeats of services that call everpoll."""

from msgspec import Struct

from everpoll.server.route import Asked, Handler, Method, Route


class BeatQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The status of the service: up, degraded or down."""

    status: str = "up"


class Beaten(Struct, frozen=True):
    """A heartbeat was counted."""

    ok: bool = True


async def count_beat(asked: Asked) -> Beaten:
    """Answer `GET /api/beat/{token}`."""
    query: BeatQuery = asked.query
    await asked.serving.beats.beat(asked.params["token"], query.status)
    asked.serving.changes.changed("services")
    return Beaten()


async def count_posted_beat(asked: Asked) -> Beaten:
    """Answer `POST /api/beat/{token}`."""
    return await count_beat(asked)


def _route(method: Method, summary: str, handler: Handler) -> Route:
    return Route(
        method=method,
        path="/api/beat/{token}",
        noun="services",
        summary=summary,
        handler=handler,
        query=BeatQuery,
        answer=Beaten,
        example={"ok": True},
        problems=(404,),
        access="public",
    )


BEAT_ROUTES = [
    _route("GET", "Record a heartbeat of the service with the target `beat:TOKEN`.", count_beat),
    _route("POST", "Record a heartbeat, as GET does.", count_posted_beat),
]
