"""A demo that ends in the middle of an answer of its own servers prints no traceback: not one of asyncio's either."""

import asyncio
from typing import Any

from everpoll.cli.demo_formats import plain
from everpoll.cli.demo_server import HOST, SmallServer


def test_a_connection_that_is_open_at_the_end_is_dropped_in_silence() -> None:
    said: list[dict[str, Any]] = []
    small = SmallServer(lambda _: plain(0.0))

    async def end_midway() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        async with await asyncio.start_server(small.connected, HOST, 0) as server:
            _, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
            while not small.is_busy:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0)
            writer.transport.abort()

    asyncio.run(end_midway())
    assert said == []
    assert not small.is_busy
