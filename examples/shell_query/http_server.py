"""The simulated cloud behind a real socket: HTTP/1.1 on 127.0.0.1, one request a connection.

Promises: what the cloud calls a cut connection is one (a reset, no answer); a body is read to its declared length, up
to a limit; whatever else comes in is answered with 400. Never serves another address than this machine's own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

from examples.shell_query.marketing_cloud import MarketingCloud, Reply, Request

BODY_LIMIT = 1024 * 1024
READ_S = 10.0


@contextlib.asynccontextmanager
async def served(cloud: MarketingCloud, port: int = 0) -> AsyncIterator[str]:
    """The address of the cloud, for the length of the block."""
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: of one that it made itself, asyncio 3.11 prints a traceback when it is canceled below.
        task = asyncio.ensure_future(_exchange(cloud, reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for one in list(connections):
            one.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()


async def _exchange(cloud: MarketingCloud, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(READ_S):
            request = await _request(reader)
        writer.write(_encoded(await cloud.serve(request)))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    except ValueError as error:
        writer.write(_encoded(Reply(400, {}, str(error).encode())))
        writer.close()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    except (OSError, EOFError, TimeoutError):
        # What `serve` raises is meant to be seen on the other side as what it is.
        writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> Request:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        raise ValueError("the head of the request is too long") from None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        raise ValueError(f"{first!r:.100} is not a request line")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > BODY_LIMIT:
        raise ValueError(f"a body of {length!r:.20} bytes is not taken")
    return Request(words[0], words[1], headers, await reader.readexactly(int(length)))


def _encoded(reply: Reply) -> bytes:
    head = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
    head += [f"{name}: {value}" for name, value in reply.headers.items()]
    head += [f"Content-Length: {len(reply.body)}", "Connection: close", "", ""]
    return "\r\n".join(head).encode("latin-1") + reply.body
