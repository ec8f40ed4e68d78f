"""Apps that look at services in virtual time: one clock, one store, and remotes that answer as a test tells them to."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from everpoll import Everpoll
from everpoll.http import Answer, Kind, NotReached, Request
from everpoll.http.headers import Headers
from everpoll.monitors.checks import runtime
from everpoll.monitors.events import AnyEvent
from everpoll.monitors.service import Service
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock

URL = "http://billing/"
REFUSED = NotReached("the connection was refused", Kind.REFUSED)


@dataclass
class Asked:
    """One request that reached a remote."""

    url: str
    at: float
    """By the virtual clock."""


@dataclass(frozen=True)
class Said:
    """What a remote answers."""

    body: Any = ""
    status: int = 200
    headers: Mapping[str, str] | None = None

    def answer(self, url: str, latency_s: float) -> Answer:
        is_text = isinstance(self.body, str)
        body = self.body if is_text else json.dumps(self.body)
        headers = {"content-type": "text/plain" if is_text else "application/json", **(self.headers or {})}
        return Answer(self.status, Headers(headers), body.encode(), url, "127.0.0.1", latency_s)


Script = Said | NotReached | Callable[[], "Said | NotReached"]


class ScriptedClient:
    """A client whose remotes answer by URL; those without a script are up."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.scripts: dict[str, Script] = {}
        self.takes_s = 0.0
        self.asked: list[Asked] = []
        self.under_way = 0
        self.most_under_way = 0

    async def send(self, request: Request) -> Answer:
        """Answer as the script of the URL says."""
        self.asked.append(Asked(request.url, self._clock.now()))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
        finally:
            self.under_way -= 1
        script = self.scripts.get(request.url, Said())
        said = script() if callable(script) else script
        if isinstance(said, NotReached):
            raise said.with_traceback(None)
        return said.answer(request.url, self.takes_s)

    async def close(self) -> None:
        """There is no connection."""

    def times(self, url: str | None = None) -> list[float]:
        """When requests came."""
        return [one.at for one in self.asked if url in (None, one.url)]


class Stage:
    """One clock, one store, one world."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.client = ScriptedClient(self.clock)
        patch.setattr(runtime, "HttpClient", lambda **_: self.client)

    def app(self) -> Everpoll:
        """An app, as another process has it: nothing is shared but the store."""
        return Everpoll(self.store, clock=self.clock)

    def play(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.clock.run(scene())

    @asynccontextmanager
    async def service(
        self, name: str = "billing", url: str = "http://billing/", **options: Any
    ) -> AsyncIterator[Service]:
        """A running app with one service, which was looked at once."""
        app = self.app()
        service = app.service(name, url, **{"every": "5s", **options})
        async with app:
            await self.looked_at(url)
            yield service

    async def looked_at(self, url: str = URL) -> None:
        """Wait until the next look at a URL is recorded."""
        before = len(self.client.times(url))
        for _ in range(10_000):
            await self.clock.advance(0.01)
            if len(self.client.times(url)) > before:
                await self.clock.advance(0.2)
                return
        raise AssertionError(f"no look at {url}")

    async def events(self, after: int = 0) -> list[AnyEvent]:
        """The durable events of the service so far, behind that number."""
        found: list[AnyEvent] = []
        listing = (await self.app().services.find("billing")).events(after)
        try:
            async with asyncio.timeout(0.4):
                async for event in listing:
                    found.append(event)  # noqa: PERF401 - the timeout ends the list, and what came stays
        except TimeoutError:
            pass
        return found


def gaps(times: list[float]) -> list[float]:
    """The waits between instants."""
    return [round(later - earlier, 6) for earlier, later in pairwise(times)]
