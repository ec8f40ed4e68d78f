"""A server under test: an app with one of each, real HTTP over uvicorn on loopback, and clients."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from everpoll import Budget, Everpoll
from everpoll.server.running import HttpServer
from everpoll.watches import Done, Wait
from warm_processes import WarmProcess

TOKEN = "a-token-for-tests"  # noqa: S105 - of no server
READ_TOKEN = "a-token-that-only-reads"  # noqa: S105
LIMIT_S = 60.0


def example_app(url: str, **options: Any) -> Everpoll:
    """An app with a job that works, one that fails, a watch, a loop and a service that cannot be reached."""
    app = Everpoll(url, **options)

    @app.job()
    async def audit(url: str, depth: int = 1) -> dict[str, Any]:
        return {"url": url, "depth": depth}

    @app.job()
    async def broken(password: str = "") -> None:
        raise ValueError("it never works")

    @app.job(queue="slow")
    async def wait(seconds: float = 60.0) -> None:
        await asyncio.sleep(seconds)

    @app.watch(every="1s", budget=Budget("29m", looks=120))
    async def export(op: dict[str, Any], w: Any) -> Done | Wait:
        return Wait() if op.get("never") else Done({"rows": 3})

    @app.loop(every="1h")
    async def refresh() -> None: ...

    app.service("billing", "http://127.0.0.1:9/health", every="1h")
    return app


@contextlib.contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """The tokens of the environment, for the length of the block."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set(variables)
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@dataclass(frozen=True)
class Site:
    app: Everpoll
    server: HttpServer
    http: httpx.AsyncClient
    """With the token."""

    @contextlib.asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """Another client, with these headers only."""
        async with httpx.AsyncClient(base_url=self.server.url, headers=headers, timeout=LIMIT_S) as client:
            yield client

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.http.post(path, json=body) if body is not None else await self.http.post(path)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


@contextlib.asynccontextmanager
async def site(
    app: Everpoll, *, token: str | None = TOKEN, works: bool = True, alone: bool = False
) -> AsyncIterator[Site]:
    """Serve an app, whose worker runs beside where `works`."""
    with environment(EVERPOLL_TOKEN=token, EVERPOLL_READ_TOKEN=READ_TOKEN if token else None):
        server = HttpServer(app, port=0, is_alone=alone)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    app.accompany(server)
    async with contextlib.AsyncExitStack() as until:
        if works:
            await until.enter_async_context(app)
        else:
            until.push_async_callback(app.close, 0)
        await server.start()
        http = httpx.AsyncClient(base_url=server.url, headers=headers, timeout=LIMIT_S)
        yield Site(app, server, await until.enter_async_context(http))


@contextlib.contextmanager
def python(arguments: list[str], folder: Path, **variables: str) -> Iterator[WarmProcess]:
    """A Python of its own; it is killed with the block if it has not ended."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("EVERPOLL_")}
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    process = WarmProcess(arguments, cwd=folder, env=env | {"PYTHONPATH": paths} | variables)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def is_healthy(url: str) -> bool:
    """Whether a server is there and says that it is healthy."""
    async with httpx.AsyncClient(base_url=url) as http:
        with contextlib.suppress(httpx.TransportError):
            return (await http.get("/health")).status_code == 200
    return False


async def until(ask: Callable[[], Awaitable[Any]], limit_s: float = LIMIT_S) -> Any:
    """Ask again and again until the answer is true; return it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if answer := await ask():
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true in time")


@dataclass(frozen=True)
class SentEvent:
    """One event of a stream."""

    event: str
    id: str | None
    data: Any


async def events_of(answer: httpx.Response) -> AsyncIterator[SentEvent]:
    """The events of a stream as a browser reads them, comments left out."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if not line:
            if "data" in fields:
                yield SentEvent(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
