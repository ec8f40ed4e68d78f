"""A toy transaction pooler: every transaction goes to another server connection, as the worst pooler would do it.

It speaks just enough of the protocol: messages are forwarded as they are, a server connection is given back when the
server says that no transaction is open, and the next one has rested longest (`is_lifo`: that was used
last, as PgBouncer does it). `is_sticky` is session mode: a client keeps the first connection that it was lent.
Notifications that arrive at a connection that serves no client are dropped. Prepared statements are not carried over.
"""

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Coroutine
from typing import Any, Self
from urllib.parse import urlsplit

PROTOCOL, SSL_REQUEST, GSS_REQUEST = 196_608, 80_877_103, 80_877_104
SETTINGS = {
    "server_version": "15.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "TimeZone": "UTC",
}


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


class ServerSide:
    """One connection to Postgres, lent to one client after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client: asyncio.StreamWriter | None = None
        self.questions = 0


class Pooler:
    """`async with Pooler(url) as pooler: PostgresStore(pooler.url)`."""

    def __init__(self, url: str, size: int = 4, *, is_lifo: bool = False, is_sticky: bool = False) -> None:
        self._parts = urlsplit(url)
        self._size = size
        self._is_lifo = is_lifo
        self._is_sticky = is_sticky
        self._idle: deque[ServerSide] = deque()
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.switches = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        for _ in range(self._size):
            await self._connect()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._parts._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers.append(writer)
        words = ["user", "postgres", "database", self._parts.path.lstrip("/"), ""]
        body = struct.pack("!i", PROTOCOL) + b"\0".join(word.encode() for word in words) + b"\0"
        writer.write(struct.pack("!i", len(body) + 4) + body)
        while (await read_message(reader))[0] != b"Z":
            pass
        server = ServerSide(reader, writer)
        self._idle.append(server)
        self._spawn(self._pump(server))

    async def _pump(self, server: ServerSide) -> None:
        """Answers go to the client that has the connection; between transactions no client has it."""
        while True:
            kind, body = await read_message(server.reader)
            if server.client is not None:
                server.client.write(message(kind, body))
            if kind == b"Z":
                server.questions -= 1
                if body == b"I" and server.questions == 0 and not self._is_sticky:
                    server.client = None
                    self._idle.append(server)
                    self._freed.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            if await self._greet(reader, writer):
                await self._forward(reader, writer)
        writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        while True:
            size, code = struct.unpack("!ii", await reader.readexactly(8))
            await reader.readexactly(size - 8)
            if code in (SSL_REQUEST, GSS_REQUEST):
                writer.write(b"N")
                continue
            if code != PROTOCOL:
                return False
            settings = b"".join(message(b"S", f"{name}\0{value}\0".encode()) for name, value in SETTINGS.items())
            key = message(b"K", struct.pack("!ii", 4711, 4711))
            writer.write(message(b"R", struct.pack("!i", 0)) + settings + key + message(b"Z", b"I"))
            return True

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: ServerSide | None = None
        while True:
            kind, body = await read_message(reader)
            if kind == b"X":
                return
            if server is None or server.client is not writer:
                server = await self._lend(writer)
            if kind in (b"S", b"Q"):
                server.questions += 1
            server.writer.write(message(kind, body))

    async def _lend(self, writer: asyncio.StreamWriter) -> ServerSide:
        while not self._idle:
            self._freed.clear()
            await self._freed.wait()
        server = self._idle.pop() if self._is_lifo else self._idle.popleft()
        server.client = writer
        self.switches += 1
        return server

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))
