"""Changes: tells screens which topics to read again, by one message for all screens in each tick.

Promises: a hint may be late (by a second) or dropped, but the last one always comes: a screen that reads again after
each hint ends up with the current data. While no screen is connected, nothing is read. A tick without changes writes
nothing. A screen costs its connection and no further memory.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from everpoll.errors import StoreUnavailable
from everpoll.server.answers import encoded
from everpoll.server.feed_hub import FeedHub
from everpoll.server.served import ServedApp
from everpoll.server.streams import KEEP_ALIVE, KEEP_ALIVE_S, frame
from everpoll.stores.contract import Event, Store, TaskFilter

logger = logging.getLogger("everpoll.server")

TICK_S = 0.25
QUERY_S = 1.0
"""How often the store is queried for changes without events: jobs that end, workers, queues."""
FIRST_QUERY_S = 1.0
"""How long the first screen waits for the first query: else older changes would be announced, too."""
TOPICS = ("jobs", "runs", "services", "incidents", "loops", "workers", "queues", "events")
_OF_KINDS = {
    "job": ("jobs", "queues"),
    "bulk": ("jobs", "queues"),
    "watch": ("runs",),
    "check": ("services",),
    "service": ("services",),
    "incident": ("incidents", "services"),
    "loop": ("loops",),
    "queue": ("queues",),
}


class Changes:
    """The screens of one event loop."""

    def __init__(self, app: ServedApp, store: Callable[[], Awaitable[Store]], hub: FeedHub) -> None:
        self._app = app
        self._store = store
        self._hub = hub
        self._versions: dict[str, int] = {}
        self._changed: set[str] = set()
        self._seen: dict[str, Any] = {}
        self._screens = 0
        self._message = b""
        self._ticked = asyncio.Event()
        self._begun = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None

    async def hints(self) -> AsyncGenerator[bytes, None]:
        """Yield the versions of all topics, then each that changes; never ends."""
        self._screens += 1
        if self._ticking is None or self._ticking.done():
            self._begun = asyncio.Event()
            self._ticking = asyncio.get_running_loop().create_task(self._tick(), name="everpoll-changes")
        try:
            await self._begun.wait()
            yield b"".join(_hint(topic, version) for topic, version in self._versions.items())
            while True:
                # All screens share this object and send the same bytes.
                await self._ticked.wait()
                yield self._message
        finally:
            self._screens -= 1
            if self._screens == 0:
                self.close()

    def close(self) -> None:
        """Stop querying."""
        if self._ticking is not None:
            self._ticking.cancel()
        self._ticking = None
        self._seen.clear()

    def changed(self, *topics: str) -> None:
        """Note that these topics have changed; the next tick sends it."""
        self._changed.update(topics)

    async def _tick(self) -> None:
        now = asyncio.get_running_loop().time
        begun = self._begun
        self._hub.listeners.append(self._read_events)
        try:
            with self._hub.following():
                await self._begin()
                begun.set()
                queried_at = sent_at = now()
                while True:
                    await asyncio.sleep(TICK_S)
                    self._compare_loops()
                    if now() - queried_at >= QUERY_S:
                        await self._query()
                        queried_at = now()
                    if self._changed or now() - sent_at >= KEEP_ALIVE_S:
                        sent_at = now()
                        self._send()
        finally:
            begun.set()
            self._hub.listeners.remove(self._read_events)

    async def _begin(self) -> None:
        """Query once, then set the versions: a screen that reads after them misses nothing, and reads once."""
        self._compare_loops()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_QUERY_S):
                await self._query()
        self._versions = dict.fromkeys(TOPICS, _version(self._app))
        self._changed.clear()

    def _send(self) -> None:
        version = _version(self._app)
        changed, self._changed = sorted(self._changed), set()
        self._versions.update(dict.fromkeys(changed, version))
        self._message = b"".join(_hint(topic, version) for topic in changed) or KEEP_ALIVE
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()

    def _read_events(self, events: Sequence[Event]) -> None:
        self._changed.add("events")
        for event in events:
            self._changed.update(_OF_KINDS.get(event.kind, ()))

    def _compare_loops(self) -> None:
        loops = [(name, loop.state.runs, loop.state.phase, loop.state.failures) for name, loop in self._loops()]
        self._compare("loops", loops)

    def _loops(self) -> list[tuple[str, Any]]:
        # A screen cannot show thousands of moving loops: only the first ones are compared.
        return list(self._app.loops.items())[:200]

    async def _query(self) -> None:
        """Query the store for changes without events."""
        try:
            store = await self._store()
            queues = await store.queues()
            newest = (await store.tasks(TaskFilter(kind="job"), limit=1)).tasks
            workers = await store.workers()
        except (StoreUnavailable, TimeoutError):
            return
        except Exception:
            logger.exception("querying for changes failed; screens get them later")
            return
        self._compare("queues", queues)
        self._compare("jobs", (queues, [(one.id, one.state, one.attempt) for one in newest]))
        self._compare("workers", [msgspec.structs.replace(one, beat_age_s=0.0) for one in workers])

    def _compare(self, topic: str, seen: Any) -> None:
        # Nothing is known about the time before the first query: the topic may have changed since the screen read it.
        if topic not in self._seen or self._seen[topic] != seen:
            self._changed.add(topic)
        self._seen[topic] = seen


def _hint(topic: str, version: int) -> bytes:
    return frame(encoded({"topic": topic, "version": version}), "change")


def _version(app: ServedApp) -> int:
    """Return a number that grows, in every process: milliseconds of the wall clock."""
    return round(app.services.wall() * 1000)
