"""A call that comes while the app closes fails at once, and does not open the store again."""

import asyncio
import logging

import pytest

from everpoll import Everpoll
from everpoll.errors import NotRunning
from everpoll.stores.postgres import PostgresStore


async def test_a_caller_that_comes_in_the_middle_of_a_close_does_not_wait_for_ever(
    app: Everpoll, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job
    async def never() -> None: ...

    store = app._store
    close = store.close
    asking: list[asyncio.Task[object]] = []

    async def close_meanwhile() -> None:
        if not asking:
            asking.append(asyncio.get_running_loop().create_task(task.result()))
            await asyncio.sleep(0)
        await close()

    async with app:
        task = await never.enqueue(delay="1h")
        monkeypatch.setattr(store, "close", close_meanwhile)
        caplog.set_level(logging.ERROR, "everpoll")
    done, pending = await asyncio.wait(asking, timeout=3)
    for one in pending:
        one.cancel()
    assert not pending, "it waits on a store that was closed"
    assert [type(one.exception()) for one in done] == [NotRunning]
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
    if isinstance(store, PostgresStore):
        assert not store._connections.pids, "a connection was opened behind the app's back"
