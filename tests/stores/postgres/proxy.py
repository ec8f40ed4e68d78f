"""A way to Postgres that can fail: forwards bytes until told to hold the answers back, or to cut everything."""

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Between a store and its server: `async with Proxy(url) as proxy: PostgresStore(proxy.url)`."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._answers = asyncio.Event()
        self._answers.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.held = asyncio.Event()
        """An answer is held back."""
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._parts._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold_answers(self) -> None:
        """From now on the server hears every client, and no client hears the server."""
        self._answers.clear()
        self.held.clear()

    def let_through(self) -> None:
        """As before; what was held back arrives now, if a client still waits for it."""
        self._answers.set()

    def cut(self) -> None:
        """Close every connection, without a word, on both sides."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:
            writer.transport.abort()  # the server is away: so is what stands before it
            return
        self._writers |= {writer, there_writer}
        pumps = [
            asyncio.get_running_loop().create_task(pump)
            for pump in (self._pump(reader, there_writer, None), self._pump(there_reader, writer, self._answers))
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps)
        self._tasks.difference_update(pumps)
        self._writers -= {writer, there_writer}

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if gate is not None and not gate.is_set():
                    self.held.set()
                    await gate.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
