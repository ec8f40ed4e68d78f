"""A health endpoint and a receiver of alerts on loopback, in a thread of the test's own."""

import asyncio
import json
import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Any, Self

from aiohttp import web


class Endpoint:
    """Answers every service at its own path, and keeps what was asked and what was sent here."""

    def __init__(self) -> None:
        self.url = ""
        self.down: set[str] = set()
        """Services that answer with 503."""
        self.asked: dict[str, list[float]] = defaultdict(list)
        """When each service was answered, in seconds since the epoch."""
        self.letters: list[dict[str, Any]] = []
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the endpoint did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._loop is not None, "it was started"
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def notices(self, kind: str) -> set[str]:
        """The ids of the incidents that notices of this kind are about."""
        return {one["incident"] for letter in list(self.letters) for one in letter["notices"] if one["kind"] == kind}

    def notice_count(self, kind: str) -> int:
        """How many notices of this kind came; a letter that came again counts once, as receivers of webhooks do."""
        letters = {letter["webhook-id"]: letter for letter in list(self.letters)}
        return sum(one["kind"] == kind for letter in letters.values() for one in letter["notices"])

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application()
        app.router.add_post("/alerts", self._receive)
        app.router.add_get("/health/{name}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._over.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.asked[name].append(time.time())
        return web.Response(status=503 if name in self.down else 200, text="ok")

    async def _receive(self, request: web.Request) -> web.Response:
        self.letters.append(json.loads(await request.read()) | {"webhook-id": request.headers["webhook-id"]})
        return web.Response()
