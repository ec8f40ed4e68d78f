"""A job that is enqueued in the caller's own transaction is there if that was committed, and only then."""

import asyncio
import random
from typing import Any

import pytest

from everpoll import Everpoll, KeyTaken
from own_transactions.rounds import LIMIT_S, async_rounds, enqueued, ledger, sync_rounds
from own_transactions.ways import AsyncWay, SyncWay


async def rounds(way: AsyncWay | SyncWay, job: Any, count: int, rng: random.Random) -> list[int]:
    if isinstance(way, AsyncWay):
        return await async_rounds(way, job, count, rng)
    return await asyncio.to_thread(sync_rounds, way, job, count, rng)


@pytest.mark.parametrize("count", [24, pytest.param(1_000, marks=pytest.mark.prove)])
async def test_after_random_commits_and_rollbacks_what_was_committed_is_enqueued(
    way: AsyncWay | SyncWay, count: int
) -> None:
    app = Everpoll(way.url)

    @app.job()
    async def f(number: int) -> None: ...

    kept = await rounds(way, f, count, random.Random(count))
    assert await enqueued(app) == kept == await ledger(way.url)
    assert 0 < len(kept) < count
    app.sync.close()
    await app.close()


async def test_a_commit_wakes_a_worker_and_a_rollback_leaves_nothing_to_run(way: AsyncWay | SyncWay) -> None:
    """The worker rests: a poll would find the job only after minutes."""
    app, ran, is_idle = Everpoll(way.url), asyncio.Queue[int](), asyncio.Event()

    @app.job()
    async def f(number: int) -> None:
        ran.put_nowait(number)

    async with app:
        await (await f.enqueue(-1)).result(timeout=LIMIT_S)
        is_idle.set()
        kept = await rounds(way, f, 6, random.Random(3))
        async with asyncio.timeout(LIMIT_S):
            found = [await ran.get() for _ in [-1, *kept]]
        assert found == [-1, *kept]
        assert ran.empty()
    app.sync.close()


async def test_a_key_that_is_taken_leaves_the_transaction_usable(way: AsyncWay | SyncWay) -> None:
    app = Everpoll(way.url)

    @app.job(key=lambda number: f"k:{number}")
    async def f(number: int) -> None: ...

    first = await f.enqueue(1, delay="1h")

    async def asynchronously(way: AsyncWay) -> None:
        await way.open()
        async with way.transaction(commit=True) as (connection, write):
            await write(1)
            with pytest.raises(KeyTaken) as raised:
                await f.enqueue(1, connection=connection, on_conflict="reject")
            assert raised.value.task.id == first.id
            with pytest.raises(KeyTaken):
                await f.enqueue_many([(3,), (1,)], connection=connection, on_conflict="reject")
            assert (await f.enqueue(1, connection=connection)).id == first.id
            assert (await f.enqueue(1, connection=connection, on_conflict="replace", priority=7)).id == first.id
            assert (await f.enqueue(2, connection=connection, on_conflict="reject", unique_for="1h")).is_new
            await write(2)
        await way.close()

    def synchronously(way: SyncWay) -> None:
        way.open()
        with way.transaction(commit=True) as (connection, write):
            write(1)
            with pytest.raises(KeyTaken) as raised:
                f.sync.enqueue(1, connection=connection, on_conflict="reject")
            assert raised.value.task.id == first.id
            with pytest.raises(KeyTaken):
                f.sync.enqueue_many([(3,), (1,)], connection=connection, on_conflict="reject")
            assert f.sync.enqueue(1, connection=connection).id == first.id
            assert f.sync.enqueue(1, connection=connection, on_conflict="replace", priority=7).id == first.id
            assert f.sync.enqueue(2, connection=connection, on_conflict="reject", unique_for="1h").is_new
            write(2)
        way.close()

    if isinstance(way, AsyncWay):
        await asynchronously(way)
    else:
        await asyncio.to_thread(synchronously, way)
    assert await ledger(way.url) == [1, 2]
    assert await enqueued(app) == [1, 2]
    assert (await first.info()).priority == 7
    app.sync.close()
    await app.close()


async def test_every_option_arrives(way: AsyncWay | SyncWay) -> None:
    app = Everpoll(way.url)

    @app.job(queue="mail", timeout="9s", concurrency=2, per="name")
    async def f(name: str) -> None: ...

    options: dict[str, Any] = {"delay": "1h", "priority": 5, "key": "ä %s {} $1 :a ?"}
    text = "%s :a1 $1 {x} 'quoted' \"double\" ünï\\"
    if isinstance(way, AsyncWay):
        await way.open()
        async with way.transaction(commit=True) as (connection, _):
            task_id = (await f.enqueue(text, connection=connection, **options)).id
        await way.close()
    else:

        def put(way: SyncWay) -> int:
            way.open()
            with way.transaction(commit=True) as (connection, _):
                found = f.sync.enqueue(text, connection=connection, **options).id
            way.close()
            return found

        task_id = await asyncio.to_thread(put, way)
    info = await app.task(task_id).info()
    assert (info.queue, info.priority, info.key, info.args["args"]) == ("mail", 5, options["key"], [text])
    assert info.limit is not None
    assert info.limit.running == 2
    assert round((info.due_at - info.created_at).total_seconds()) == 3600
    app.sync.close()
    await app.close()
