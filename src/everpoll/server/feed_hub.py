"""The feed hub: one reader of the durable log for all subscribers of a process.

    store ──one page a look──▶ chunks (the last BUFFER_BYTES) ──▶ each subscriber, from its own place

Promises: a subscriber gets each event after its place once and in order, from the buffer or, if that does not reach
back far enough, from the store. A slow subscriber leaves the buffer and reads the store: it costs the memory of one
part, which is PART_BYTES and an event at most. Nothing is read while there is no subscriber. After an outage of the
store, reading goes on.
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
PART_BYTES = 256 * 1024
"""A part is sent as a whole, and is in memory until the client has taken it: with all of the buffer in one part, 300
clients on slow lines cost 1.2 GB."""
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
    """Some events: those after `start`, up to `end`. About PART_BYTES at most."""

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
        limit = PAGE
        with self.following():
            while True:
                ticked, buffered = self._ticked, self._buffered(place)
                if buffered is None:
                    place, found, limit = await self._caught_up(place, limit)
                elif buffered[1]:
                    place, found = buffered
                else:
                    await ticked.wait()
                    buffered = self._buffered(place)
                    found = KEEP_ALIVE if buffered is not None and not buffered[1] else b""
                if found:
                    yield found

    def _buffered(self, place: int) -> tuple[int, bytes] | None:
        """Return the next part after a place, and where it ends; None: the buffer does not reach back that far."""
        if self._place is None:
            return None
        if place >= self._place:
            return place, b""
        if not self._chunks or self._chunks[0].start > place:
            return None
        parts: list[bytes] = []
        for chunk in self._chunks:
            if chunk.end > place:
                if parts and sum(map(len, parts)) + len(chunk.whole) > PART_BYTES:
                    break
                parts.append(_behind(chunk, place))
                place = chunk.end
        return place, b"".join(parts)

    async def _caught_up(self, place: int, limit: int) -> tuple[int, bytes, int]:
        """Read a part from the store; return where it ends, its frames, and how many events to read next time."""
        reached = self._place
        async with self._turns:
            store = await self._store()
            try:
                page = await store.events(str(place), limit)
            except StoreUnavailable:
                await asyncio.sleep(OUTAGE_S)
                return place, KEEP_ALIVE, limit
        frames = [(place_in_feed(one.position), event_frame(one)) for one in page.events]
        part, *rest = _parts(frames) or [[]]
        body = b"".join(one for _, one in part)
        if rest:
            # Large events: read as many as fit next time.
            return part[-1][0], body, len(part)
        place = max(place, place_in_feed(page.after))
        if len(page.events) < limit and reached is not None:
            # No event appears before a place that was read earlier, so this page had everything up to that place.
            place = max(place, reached)
        if not page.events and reached is None:
            await asyncio.sleep(LOOK_S)
        return place, body, min(PAGE, 2 * limit)

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
        parts = _parts([(place_in_feed(event.position), event_frame(event)) for event in events])
        for place, part in enumerate(parts, 1):
            chunk_end = end if place == len(parts) else part[-1][0]
            chunk = Chunk(self._place, chunk_end, part, b"".join(one for _, one in part))
            self._chunks.append(chunk)
            self._place = chunk_end
            self._bytes += len(chunk.whole)
        while self._bytes > BUFFER_BYTES and len(self._chunks) > 1:
            self._bytes -= len(self._chunks.popleft().whole)
        for listener in self.listeners:
            listener(events)

    def _tick(self) -> None:
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()


def _parts(frames: list[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
    """Return the frames in parts of PART_BYTES at most; a part with one frame may be larger."""
    parts: list[list[tuple[int, bytes]]] = []
    size = 0
    for one in frames:
        size += len(one[1])
        if not parts or size > PART_BYTES:
            parts.append([])
            size = len(one[1])
        parts[-1].append(one)
    return parts


def _behind(chunk: Chunk, place: int) -> bytes:
    return chunk.whole if chunk.start >= place else b"".join(one for at, one in chunk.frames if at > place)
