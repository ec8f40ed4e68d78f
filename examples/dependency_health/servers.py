"""The servers of the example, each at a port of its own on 127.0.0.1."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from examples.dependency_health.certificate import expired_certificate
from examples.dependency_health.stories import STORIES, Story, is_well

HOST = "127.0.0.1"


class Servers:
    """Answers requests, and counts them by service."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.targets: dict[str, str] = {}
        self._started_at = time.monotonic()
        self._answers: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self, certificate: Path) -> AsyncIterator[None]:
        """Listen for the length of the block; the certificate is made, and is one that has expired."""
        expired_certificate(HOST, certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        async with AsyncExitStack() as stack:
            for story in STORIES:
                self.targets[story.name] = await self._listen(story, context, stack)
            yield

    async def _listen(self, story: Story, context: ssl.SSLContext, stack: AsyncExitStack) -> str:
        if story.shares is not None:
            return self.targets[story.shares]
        if story.is_dead:
            # Bound, and not listening: connections are refused, and no other program can take the port.
            bound = stack.enter_context(socket.socket())
            bound.bind((HOST, 0))
            return f"http://{HOST}:{bound.getsockname()[1]}/health"
        tls = context if story.has_expired else None
        server = await asyncio.start_server(partial(self._connected, story), HOST, 0, ssl=tls)
        stack.callback(server.close)
        scheme = "http" if tls is None else "https"
        return f"{scheme}://{HOST}:{server.sockets[0].getsockname()[1]}/health"

    def _connected(self, story: Story, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: of one that it made itself, asyncio 3.11 prints a traceback when the demo cancels it.
        answer = asyncio.ensure_future(self._answer(story, reader, writer))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    async def _answer(self, story: Story, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await reader.readuntil(b"\r\n\r\n")
                self.requests[story.name] += 1
                await asyncio.sleep(story.takes_s)
                body = story.write(is_well(story, time.monotonic() - self._started_at))
                head = f"HTTP/1.1 {body.status} -\r\nContent-Type: {body.content_type}\r\nConnection: close\r\n"
                writer.write(f"{head}Content-Length: {len(body.content)}\r\n\r\n".encode() + body.content)
                await writer.drain()
        finally:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
