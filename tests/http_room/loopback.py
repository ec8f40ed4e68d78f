"""A remote on loopback that says what a test tells it to, well-behaved or not."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

LIMIT_S = 20.0
"""Far more than anything here takes: a test that needs it has failed."""


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes
    connection: int
    """The number of the connection, from 1."""


Talk = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int = 200, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """A complete answer."""
    own = {} if status in (204, 304) else {"Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**own, **(headers or {})}.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body


def say(*parts: bytes) -> Talk:
    """Send these bytes for every request, and wait for the next."""

    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return talk


def say_made(make: Callable[[], bytes]) -> Talk:
    """Send what is made when the request comes: what is large is not made while tests are collected."""

    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await say(make())(asked, writer)

    return talk


def say_and_close(*parts: bytes) -> Talk:
    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await say(*parts)(asked, writer)
        writer.close()

    return talk


def by_path(paths: Mapping[str, bytes | Talk]) -> Talk:
    """An answer by path, without the query; 404 for what is not listed."""

    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        found = paths.get(asked.path.partition("?")[0], answer(404))
        await (say(found) if isinstance(found, bytes) else found)(asked, writer)

    return talk


async def silence(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the client hangs up."""
    await asyncio.Event().wait()


@dataclass
class Loopback:
    """`async with Loopback(talk) as remote:` listens on 127.0.0.1; `talk` may be exchanged."""

    talk: Talk
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    """Connections that neither side has closed."""
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    """A client has closed a connection."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _transports: list[asyncio.BaseTransport] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Protocol(self._serve, self._transports), self.host, 0, ssl=self.tls
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        # A connection that was accepted just now has neither a transport nor a task yet.
        for _ in range(5):
            await asyncio.sleep(0)
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in self._transports:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.abort()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"

    def at(self, host: str) -> str:
        """The URL under another name."""
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"

    def paths(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.asked]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.open += 1
        number = self.connections
        try:
            # Canceled is what a server is at the end of its test.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not writer.is_closing():
                    asked = await _read(reader, number)
                    self.asked.append(asked)
                    await self._talk(asked, reader, writer)
        finally:
            self.open -= 1
            self.hung_up.set()
            writer.transport.abort()

    async def _talk(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the talk ends, or the client hangs up."""
        talking = asyncio.ensure_future(self.talk(asked, writer))
        assert isinstance(reader, _Reader)
        gone = asyncio.ensure_future(reader.ended.wait())
        try:
            await asyncio.wait((talking, gone), return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                talking.result()
        finally:
            talking.cancel()
            gone.cancel()
            await asyncio.gather(talking, gone, return_exceptions=True)


@contextlib.asynccontextmanager
async def listening(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """A server that speaks no HTTP of its own accord; the port is handed over."""
    talking: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await talk(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        await server.wait_closed()


class _Reader(asyncio.StreamReader):
    """Tells when the other side has hung up."""

    def __init__(self) -> None:
        super().__init__(limit=2**16)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.ended.set()


class _Protocol(asyncio.StreamReaderProtocol):
    """Remembers its transport, for the end of a test."""

    def __init__(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        transports: list[asyncio.BaseTransport],
    ) -> None:
        super().__init__(_Reader(), serve)
        self._all = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._all.append(transport)
        super().connection_made(transport)


async def _read(reader: asyncio.StreamReader, number: int) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body, number)
