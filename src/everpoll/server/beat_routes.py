"""Heartbeats of services that call everpoll."""

from msgspec import Struct

from everpoll.server.route import Asked, Route


class BeatQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How the service is: up, degraded or down."""

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


BEAT_ROUTES = [
    Route(
        method="GET",
        path="/api/beat/{token}",
        noun="services",
        summary="Tell that a service lives; its target is `beat:TOKEN`.",
        handler=count_beat,
        query=BeatQuery,
        answer=Beaten,
        example={"ok": True},
        problems=(404,),
        access="public",
    ),
    Route(
        method="POST",
        path="/api/beat/{token}",
        noun="services",
        summary="Tell that a service lives, as GET does.",
        handler=count_posted_beat,
        query=BeatQuery,
        answer=Beaten,
        example={"ok": True},
        problems=(404,),
        access="public",
    ),
]
