"""Every `enqueue` returns: from four threads at once, and from FastAPI's `def` and `async def` endpoints under load."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from everpoll import Everpoll
from everpoll.jobs import Job
from server.site import until
from stores.backends import backend_names
from stores.conftest import made

DATABASES = [name for name in backend_names() if name != "memory"][:2]
LIMIT_S = 120.0
CALLS, CALLERS = 400, 32


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[str]:
    with made(request, runner, tmp_path, migrated=True) as place:
        assert place.url is not None
        yield place.url


def shop(url: str) -> tuple[Everpoll, Job[[int], int]]:
    app = Everpoll(url)

    @app.job()
    def double(number: int) -> int:
        return 2 * number

    return app, double


def web_of(app: Everpoll, double: Job[[int], int], *, has_worker: bool) -> FastAPI:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if has_worker:
                await stack.enter_async_context(app)
            yield
        await app.close()
        await asyncio.to_thread(app.sync.close)

    web = FastAPI(lifespan=lifespan)

    @web.post("/plain/{number}")
    def plain(number: int) -> int:
        return double.sync.enqueue(number).id

    @web.post("/async/{number}")
    async def in_event_loop(number: int) -> int:
        return (await double.enqueue(number)).id

    return web


@contextlib.asynccontextmanager
async def served(web: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Serve it by uvicorn, on a port of its own."""
    server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())

    async def is_up() -> bool:
        return server.started

    await until(is_up)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=LIMIT_S) as http:
            yield http
    finally:
        server.should_exit = True
        await serving


async def answers(http: httpx.AsyncClient, paths: list[str]) -> list[int]:
    """Call them all, as many at a time as there are callers; return the ids of the tasks."""
    free = asyncio.Semaphore(CALLERS)

    async def call(path: str) -> int:
        async with free:
            answer = await http.post(path)
            assert answer.status_code == 200, answer.text
            return int(answer.json())

    return await asyncio.gather(*(call(path) for path in paths))


def test_every_call_of_four_threads_returns(url: str) -> None:
    app, double = shop(url)
    with ThreadPoolExecutor(4) as threads:
        tasks = list(threads.map(double.sync.enqueue, range(CALLS), timeout=LIMIT_S))
    assert len({task.id for task in tasks}) == CALLS
    assert {task.info().state for task in tasks[:: CALLS // 4]} == {"queued"}
    app.sync.close()


@pytest.mark.parametrize("has_worker", [False, True], ids=["without a worker", "beside a worker"])
def test_every_call_of_endpoints_under_load_returns(url: str, runner: asyncio.Runner, has_worker: bool) -> None:
    """Both kinds of endpoint at once, in one process; a worker of its lifespan runs what they enqueue."""
    app, double = shop(url)

    async def main() -> None:
        async with served(web_of(app, double, has_worker=has_worker)) as http:
            paths = [f"/{kind}/{number}" for number in range(CALLS // 2) for kind in ("plain", "async")]
            ids = await answers(http, paths)
            assert len(set(ids)) == CALLS
            if has_worker:
                results = [await app.task(task).result(timeout=LIMIT_S) for task in ids]
                assert results == [2 * (place // 2) for place in range(CALLS)]

    runner.run(main())
