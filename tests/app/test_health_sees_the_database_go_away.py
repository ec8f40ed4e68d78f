"""`app.health()` of an idle app is unhealthy while its database is away, names the error, and recovers with it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from everpoll import Everpoll, Health
from servers.postgres import cluster

LIMIT_S = 60.0
LEASE = "1500ms"


async def _until(app: Everpoll, wanted: Callable[[Health], bool]) -> Health:
    async with asyncio.timeout(LIMIT_S):
        while not wanted(app.health()):  # noqa: ASYNC110 - health is read, it notifies of nothing
            await asyncio.sleep(0.02)
    return app.health()


def _idle(url: str) -> Everpoll:
    app = Everpoll(url, lease=LEASE)

    @app.job()
    async def work() -> None: ...

    return app


def _is_fenced(health: Health) -> bool:
    return health.worker is not None and health.worker.is_fenced


async def test_postgres_is_stopped_and_comes_back() -> None:
    with cluster() as server:
        app = _idle(server.url())
        async with app:
            assert (await _until(app, lambda health: health.healthy)).worker is not None
            server.stop()
            health = await _until(app, _is_fenced)
            assert not health.healthy
            assert health.worker is not None
            assert health.worker.last_error is not None
            server.start()
            health = await _until(app, lambda health: health.healthy)
            assert not _is_fenced(health)


async def test_the_file_is_moved_away(tmp_path: Path) -> None:
    app = _idle(f"sqlite:///{tmp_path / 'tasks.db'}")
    async with app:
        await _until(app, lambda health: health.healthy)
        (tmp_path / "tasks.db").rename(tmp_path / "elsewhere.db")
        health = await _until(app, lambda health: not health.healthy)
        assert health.worker is not None
        health = await _until(app, lambda health: health.worker is not None and health.worker.last_error is not None)


async def test_an_app_that_cannot_start_yet_is_unhealthy() -> None:
    with cluster() as server:
        server.stop()
        app = _idle(server.url())
        running = asyncio.ensure_future(app.run())
        health = await _until(app, lambda health: health.start_error is not None)
        assert not health.healthy
        assert f"127.0.0.1:{server.port}" in str(health.start_error)
        server.start()
        health = await _until(app, lambda health: health.worker is not None)
        assert (await _until(app, lambda health: health.healthy)).start_error is None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
