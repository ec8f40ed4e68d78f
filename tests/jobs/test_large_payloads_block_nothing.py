"""Three hundred of the largest tasks with the largest results, and small ones behind them: all of them run, and end."""

import asyncio

import pytest

from everpoll import Everpoll
from everpoll.engine.options import WorkerOptions
from everpoll.engine.worker import Worker
from everpoll.jobs.call import ARGS_LIMIT
from everpoll.stores.contract import QueueInfo

LARGE = "🎉" * (ARGS_LIMIT // 4 - 100)
HOW_MANY = 300
LIMIT_S = 300.0


@pytest.mark.prove
async def test_three_hundred_of_the_largest(app: Everpoll) -> None:
    ended = 0

    @app.job(priority=1)
    async def large(text: str) -> str:
        nonlocal ended
        ended += 1
        return text

    @app.job()
    async def innocent() -> int:
        return ended

    tasks = await asyncio.gather(*(large.enqueue(LARGE) for _ in range(HOW_MANY)))
    assert len({task.id for task in tasks}) == HOW_MANY
    more = await large.enqueue_many([(LARGE,)] * 50)
    behind = await innocent.enqueue_many([()] * 50)
    store = await app.store()
    worker = Worker(store, app._works, WorkerOptions(slots=500))
    await worker.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            while await left(app):  # noqa: ASYNC110 - a store has no event for it
                await asyncio.sleep(0.2)
        infos = await store.info([tasks[0].id, more[-1].id, behind[0].id])
        assert [info.state for info in infos.values()] == ["done"] * 3
        assert infos[tasks[0].id].result == infos[more[-1].id].result == LARGE
        assert infos[behind[0].id].result == HOW_MANY + 50
        assert worker.health().consecutive_errors == 0
    finally:
        await worker.stop(0)
        await app.close()


async def left(app: Everpoll) -> list[QueueInfo]:
    """Queues with something live in them."""
    return [one for one in await (await app.store()).queues() if one.ready or one.running or one.waiting]
