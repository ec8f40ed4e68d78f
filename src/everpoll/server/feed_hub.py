"""The feed hub: one reader of the durable log for all subscribers of a process.

    store ──one page a look──▶ chunks (the last BUFFER_BYTES) ──▶ each subscriber, from its own place

Promises: a subscriber gets each event after its place once and in order, from the buffer or, if
that does not reach back far enough, from the store. A slow subscriber leaves the buffer and reads the store: it
costs no memory. Nothing is read while there is no subscriber. After an outage of the store, reading goes on.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from everpoll.drivers.repeated_warnings import RepeatedWarnings
from everpoll.errors import StoreUnavailable
from everpoll.http.stored_secrets import without_secrets
from everpoll.server.answers import encoded
from everpoll.server.streams import KEEP_ALIVE, KEEP_ALIVE_S, frame
from everpoll.stores.contract import Event, Store
from everpoll.stores.feed_positions import place_in_feed

logger = logging.getLogger("everpoll.server")

PAGE = 500
LOOK_S = 0.1
OUTAGE_S = 1.0
BUFFER_BYTES = 4 * 2**20
CATCH_UP_LIMIT = 8
"""How many subscribers read the store at a time; the others wait."""


def event_frame(event: Event) -> bytes:
    """Return the frame of an event of the log."""
    shown = {
        "at": event.at,
        "kind": event.kind,
        "name": event.name,
        "key": event.key,
        "task_id": event.task_id,
        "seq": event.seq,
        "body": without_secrets(event.body),
    }
    return frame(encoded(shown), None, event.position)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The events of one query: those after `start`, up to `end`."""

    start: int
    end: int
    frames: list[tuple[int, bytes]]
    whole: bytes


class FeedHub:
    """The subscribers of one event loop."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._place: int | None = None
        """The place up to which the log was read."""
        self._subscribers = 0
        self._ticked = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(CATCH_UP_LIMIT)
        self.listeners: list[Callable[[Sequence[Event]], None]] = []
        """Called with events as they are read: the hints for screens follow the log."""

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Read the log for the length of the block."""
        self._subscribers += 1
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._read(), name="everpoll-feed")
        try:
            yield
        finally:
            self._subscribers -= 1
            if self._subscribers == 0:
                self.close()

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.cancel()
        self._reader, self._place = None, None
        self._chunks.clear()
        self._bytes = 0

    async def behind(self, place: int) -> AsyncGenerator[bytes, None]:
        """Yield the frames of all events after a place, past ones first; never ends."""
        with self.following():
            while True:
                ticked, found = self._ticked, self._buffered(place)
                if found is None:
                    place, found = await self._caught_up(place)
                elif found:
                    assert self._place is not None, "what is buffered was read"
                    place = self._place
                else:
                    await ticked.wait()
                    found = KEEP_ALIVE if self._buffered(place) == b"" else b""
                if found:
                    yield found

    def _buffered(self, place: int) -> bytes | None:
        """Return the frames after a place; None: the buffer does not reach back that far."""
        if self._place is None:
            return None
        if place >= self._place:
            return b""
        if not self._chunks or self._chunks[0].start > place:
            return None
        parts = [_behind(chunk, place) for chunk in self._chunks if chunk.end > place]
        return b"".join(parts)

    async def _caught_up(self, place: int) -> tuple[int, bytes]:
        """Read one page from the store; return its last place and its frames."""
        reached = self._place
        async with self._turns:
            store = await self._store()
            try:
                page = await store.events(str(place), PAGE)
            except StoreUnavailable:
                await asyncio.sleep(OUTAGE_S)
                return place, KEEP_ALIVE
        frames = b"".join(map(event_frame, page.events))
        place = max(place, place_in_feed(page.after))
        if len(page.events) < PAGE and reached is not None:
            # No event appears before a place that was read earlier, so this page had everything up to that place.
            place = max(place, reached)
        if not page.events and reached is None:
            await asyncio.sleep(LOOK_S)
        return place, frames

    async def _read(self) -> None:
        now = asyncio.get_running_loop().time
        warnings = RepeatedWarnings(logger, "reading the log of events", now)
        sent_at, after = now(), None
        while True:
            pause_s = LOOK_S
            try:
                store = await self._store()
                page = await store.events(after, PAGE)
                warnings.works()
                if after is None:
                    self._place = place_in_feed(page.after)
                elif page.events:
                    self._add(page.events, place_in_feed(page.after))
                    pause_s = 0.0 if len(page.events) == PAGE else LOOK_S
                after = page.after
                if page.events or now() - sent_at >= KEEP_ALIVE_S:
                    sent_at = now()
                    self._tick()
            except StoreUnavailable as error:
                warnings.failed(error, "cannot read the log of events: %s; trying again", error)
                pause_s = OUTAGE_S
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed
                warnings.failed(error, "reading the log of events failed; trying again", level=logging.ERROR)
                pause_s = OUTAGE_S
            if pause_s == OUTAGE_S and now() - sent_at >= KEEP_ALIVE_S:
                sent_at = now()
                self._tick()
            await asyncio.sleep(pause_s)

    def _add(self, events: Sequence[Event], end: int) -> None:
        assert self._place is not None, "the first look says where the log is"
        frames = [(place_in_feed(event.position), event_frame(event)) for event in events]
        chunk = Chunk(self._place, end, frames, b"".join(one for _, one in frames))
        self._chunks.append(chunk)
        self._place = end
        self._bytes += len(chunk.whole)
        while self._bytes > BUFFER_BYTES and len(self._chunks) > 1:
            self._bytes -= len(self._chunks.popleft().whole)
        for listener in self.listeners:
            listener(events)

    def _tick(self) -> None:
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()


def _behind(chunk: Chunk, place: int) -> bytes:
    return chunk.whole if chunk.start >= place else b"".join(one for at, one in chunk.frames if at > place)
