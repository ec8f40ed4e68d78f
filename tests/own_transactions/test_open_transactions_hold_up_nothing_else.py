"""A transaction that its owner leaves open holds up the task and the key that it touches, and nothing else."""

import asyncio

import asyncpg

from everpoll import Backoff, Everpoll, Retry, Task
from jobs.jobs_stage import soon
from own_transactions.rounds import LIMIT_S
from own_transactions.ways import plain

QUICK = Retry(2, Backoff("10ms", cap="10ms"))


async def test_a_job_that_leaves_its_transaction_open_holds_up_no_other_job(postgres: str) -> None:
    """The worker cannot settle that one task while its row is locked; it goes on with all others."""
    app = Everpoll(postgres)
    connection = await asyncpg.connect(plain(postgres))
    left_open, has_completed = connection.transaction(), asyncio.Event()

    @app.job(retry=QUICK)
    async def book(task: Task) -> int:
        if task.attempt == 1:
            await left_open.start()
            await task.complete(connection=connection)
            has_completed.set()
        return task.attempt

    @app.job()
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        booked = await book.enqueue()
        await soon(has_completed)
        others = [await double.enqueue(number) for number in range(3)]
        assert [await other.result(timeout=LIMIT_S) for other in others] == [0, 2, 4]
        assert [await (await double.enqueue(number)).result(timeout=LIMIT_S) for number in range(3)] == [0, 2, 4]
        assert (await booked.info()).state == "running"
        await left_open.rollback()
        assert await booked.result(timeout=LIMIT_S) == 2
    await connection.close()


async def test_what_is_committed_late_has_ended_once(postgres: str) -> None:
    """The job returned while its transaction was open: the commit that follows is its end, and no second run comes."""
    app = Everpoll(postgres)
    connection = await asyncpg.connect(plain(postgres))
    left_open, has_completed, runs = connection.transaction(), asyncio.Event(), 0

    @app.job(retry=QUICK)
    async def book(task: Task) -> str:
        nonlocal runs
        runs += 1
        await left_open.start()
        await task.complete("kept", connection=connection)
        has_completed.set()
        return "ignored"

    async with app:
        task = await book.enqueue()
        await soon(has_completed)
        await left_open.commit()
        assert await task.result(timeout=LIMIT_S) == "kept"
    assert runs == 1
    await connection.close()


async def test_a_key_that_an_open_transaction_has_holds_up_no_enqueue_without_a_key(postgres: str) -> None:
    """An enqueue with that key must wait for the commit or the rollback; the others of the process do not wait."""
    app = Everpoll(postgres)
    connection = await asyncpg.connect(plain(postgres))

    @app.job()
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        left_open = connection.transaction()
        await left_open.start()
        await double.enqueue(1, key="k", connection=connection)
        waiting = asyncio.ensure_future(double.enqueue(2, key="k"))
        await asyncio.sleep(0)
        others = [await double.enqueue(3), *await double.enqueue_many([(4,)])]
        assert [await other.result(timeout=LIMIT_S) for other in others] == [6, 8]
        assert not waiting.done()
        await left_open.rollback()
        assert await (await waiting).result(timeout=LIMIT_S) == 4
    await connection.close()
