"""Streams: server-sent events, as frames of our own.

    client ──GET──▶ headers, then frames as they come ──▶ the client leaves, the server closes, or the stream has ended

Promises: nothing is buffered for a client beyond what its connection takes: a client that does not read costs one frame
and holds up no other, and is dropped after STUCK_S. Closing the server ends every stream within a second. A comment
every KEEP_ALIVE_S keeps proxies from ending a quiet stream.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from everpoll.server.serving import Serving

MEDIA = "text/event-stream"
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
STUCK_S = 30.0
"""How long a client may take to accept a frame."""
FAREWELL_S = 0.5
RETRY = b"retry: 2000\n\n"
"""How long a browser waits before it connects again, in milliseconds."""
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


# JSON escapes the line breaks of ASCII. Clients that cut lines as Python does would cut at these as well.
_BREAKS = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085"))


def frame(data: bytes, event: str | None = None, event_id: str | None = None) -> bytes:
    """Return the frame of one event; `data` is JSON."""
    if not data.isascii():
        for character, escape in _BREAKS:
            data = data.replace(character, escape)
    parts = [] if event_id is None else [b"id: ", event_id.encode(), b"\n"]
    parts += [] if event is None else [b"event: ", event.encode(), b"\n"]
    return b"".join([*parts, b"data: ", data, b"\n\n"])


class EventStream:
    """A streaming answer. It is an ASGI app, like the responses of Starlette."""

    def __init__(self, serving: "Serving", frames: AsyncGenerator[bytes, None]) -> None:
        self._serving = serving
        self._frames = frames
        self.headers: list[tuple[bytes, bytes]] = list(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream to the ASGI server."""
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        if scope["method"] == "HEAD":
            await self._end(send)
            return
        event_loop = asyncio.get_running_loop()
        pump = event_loop.create_task(self._pump(send), name="everpoll-stream")
        gone = event_loop.create_task(_gone(receive), name="everpoll-stream-client")
        try:
            with self._serving.streaming(pump):
                await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_gone = gone.done()
            for task in (pump, gone):
                task.cancel()
            await asyncio.gather(pump, gone, return_exceptions=True)
        if not is_gone:
            await self._end(send)

    async def _pump(self, send: Send) -> None:
        async with contextlib.aclosing(self._frames) as frames:
            await send(_part(RETRY))
            async for part in frames:
                async with asyncio.timeout(STUCK_S):
                    await send(_part(part))

    async def _end(self, send: Send) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


def _part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
