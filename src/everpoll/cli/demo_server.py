"""A small HTTP server on 127.0.0.1, for the services and the remote of the demo: one answer for each connection."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """An answer of the server: JSON or a text."""

    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"

    def sent(self) -> bytes:
        """Return the bytes on the wire."""
        body = (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()
        own = {"Content-Type": self.media, "Connection": "close", "Content-Length": str(len(body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} -", *(f"{name}: {value}" for name, value in own.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class ReceivedRequest:
    """A request of a client."""

    method: str
    path: str
    headers: Mapping[str, str]
    """The headers by their names in lower case."""


class SmallServer:
    """Answers each request by one function, which never raises."""

    def __init__(self, answer: Callable[[ReceivedRequest], Answer]) -> None:
        self._answer = answer
        self._answers: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve on a free port for the length of the block; yield the port."""
        server = await asyncio.start_server(self.connected, HOST, 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a new connection."""
        # A task of our own: asyncio 3.11 prints a traceback if the demo cancels one that asyncio made.
        answer = asyncio.ensure_future(self._serve(reader, writer))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    @property
    def is_busy(self) -> bool:
        """Whether a connection is being answered."""
        return bool(self._answers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                asked = _asked(await reader.readuntil(b"\r\n\r\n"))
                # Data that is left unread would reset the connection before the client has read the answer.
                await reader.readexactly(int(asked.headers.get("content-length", "0")))
                writer.write(self._answer(asked).sent())
                await writer.drain()
        finally:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _asked(head: bytes) -> ReceivedRequest:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, *_ = [*first.split(" "), "", ""]
    named = (line.partition(":") for line in lines if line)
    return ReceivedRequest(method, path, {name.strip().lower(): value.strip() for name, _, value in named})
