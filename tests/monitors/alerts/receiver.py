"""A receiver of webhooks on loopback, which answers as a test tells it to."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Received:
    headers: Mapping[str, str]
    body: bytes
    status: int = 0
    """What was answered."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    url: str = ""
    received: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    """Of the next answers; then 200."""
    headers: dict[str, str] = field(default_factory=dict)
    text: str = "ok"
    is_silent: bool = False
    """Takes the request, and never answers."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        got = Received({name.lower(): value for name, value in request.headers.items()}, await request.read())
        self.received.append(got)
        if self.is_silent:
            await asyncio.Event().wait()
        got.status = status = self.statuses.pop(0) if self.statuses else 200
        self.arrived.set()
        return web.Response(status=status, text=self.text, headers=self.headers)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()
