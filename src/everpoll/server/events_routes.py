"""Events: the durable log as a stream, and hints for screens."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from everpoll.errors import BadInput
from everpoll.server.answers import encoded
from everpoll.server.route import ApiCall, Route
from everpoll.server.serving import Serving
from everpoll.server.streams import MEDIA, EventStream, frame
from everpoll.stores.contract import Store
from everpoll.stores.feed_positions import place_in_feed


async def follow_events(call: ApiCall) -> EventStream:
    """Answer `GET /api/events`."""
    serving, given = call.serving, call.request.headers.get("last-event-id", "").strip()
    store = await serving.app.store()
    now = (await store.events(None, 1)).after
    after, why = await _start(store, given, now)
    return EventStream(serving, _frames(serving, after, await _state(store, after), why))


async def _start(store: Store, given: str, now: str) -> tuple[str, str | None]:
    """Return the place after which the stream begins, and why it differs from the requested one."""
    if not given:
        return now, None
    try:
        place = place_in_feed(given)
    except BadInput:
        return now, "that is not a place in this log"
    if place > place_in_feed(now):
        return now, "that place is after the end of this log: it is from another database"
    page = await store.events(given, 1)
    if page.is_gap:
        return now, "events after that place were dropped because of their age"
    return given, None


async def _state(store: Store, after: str) -> dict[str, Any]:
    return {"position": after, "at": datetime.now(UTC), "queues": await store.queues()}


async def _frames(serving: Serving, after: str, state: dict[str, Any], why: str | None) -> AsyncGenerator[bytes, None]:
    if why is not None:
        yield frame(encoded({"position": after, "why": why}), "reset", after)
    yield frame(encoded(state), "state", after)
    events = serving.hub.behind(place_in_feed(after))
    try:
        async for part in events:
            yield part
    finally:
        await events.aclose()


async def follow_changes(call: ApiCall) -> EventStream:
    """Answer `GET /api/changes`."""
    await asyncio.sleep(0)
    return EventStream(call.serving, call.serving.changes.hints())


EVENT_ROUTES = [
    Route(
        method="GET",
        path="/api/events",
        noun="events",
        summary="Follow the durable log from now on, or after `Last-Event-ID`: each event once and in order.",
        handler=follow_events,
        media=MEDIA,
        example='id: 17\nevent: state\ndata: {"position":"17","queues":[]}\n\n'
        'id: 18\ndata: {"kind":"watch","name":"shell_query","key":"shell_query:run-42","task_id":7,"seq":2,'
        '"body":{"phase":"looking"}}\n\n',
    ),
    Route(
        method="GET",
        path="/api/changes",
        noun="events",
        summary="Follow hints for screens: a topic has changed, so read it again. Hints may be dropped.",
        handler=follow_changes,
        media=MEDIA,
        example='event: change\ndata: {"topic":"jobs","version":1767323045000}\n\n',
    ),
]
