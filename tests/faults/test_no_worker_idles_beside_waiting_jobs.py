"""Four workers of one slot share two queues on Postgres: a look that met locked rows is followed by another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg

from everpoll import Everpoll
from faults.ledger import PostgresLedger

WORKERS, JOBS = 4, 16
PATIENCE_S = 25.0
"""Shorter than the shortest rest under push: a worker that rests beside a waiting job is found out."""


class Shift:
    """What all workers do together: each job runs until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.changed = asyncio.Condition()
        self.running: list[asyncio.Event] = []

    async def work(self) -> None:
        over = asyncio.Event()
        async with self.changed:
            self.begun += 1
            self.running.append(over)
            self.changed.notify_all()
        await over.wait()

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.begun >= count)


def made(url: str, shift: Shift) -> Everpoll:
    app = Everpoll(url, slots=1)

    @app.job(name="red", queue="red")
    async def red() -> None:
        await shift.work()

    @app.job(name="blue", queue="blue")
    async def blue() -> None:
        await shift.work()

    return app


async def enqueue(app: Everpoll) -> None:
    for number in range(JOBS):
        await app.jobs["red" if number % 2 else "blue"].enqueue()


async def run_all(shift: Shift) -> None:
    """Let them go one by one; for each that ends, the next one begins."""
    for ended in range(JOBS + 1):
        await shift.until_begun(min(ended + WORKERS, JOBS))
        if ended < JOBS:
            shift.running.pop(0).set()


@asynccontextmanager
async def a_lease_that_is_undone(url: str) -> AsyncIterator[None]:
    """Within the block, a worker is about to lease every task; then it is killed, and Postgres rolls back."""
    killed = await asyncpg.connect(url)
    try:
        await killed.execute("begin")
        locked = await killed.fetch("select from everpoll.tasks for update")
        assert len(locked) == JOBS
        yield
    finally:
        killed.terminate()


async def until_polled(apps: list[Everpoll]) -> None:
    def has_polled(app: Everpoll) -> bool:
        health = app.health().worker
        return health is not None and health.polls_per_minute > 0

    async with asyncio.timeout(PATIENCE_S):
        while not all(map(has_polled, apps)):  # noqa: ASYNC110 - a worker has no event for it
            await asyncio.sleep(0.01)


def test_every_free_slot_takes_a_waiting_job(postgres: PostgresLedger) -> None:
    async def play() -> None:
        shift = Shift()
        async with AsyncExitStack() as until:
            apps = [await until.enter_async_context(made(postgres.url, shift)) for _ in range(WORKERS)]
            await enqueue(apps[0])
            await run_all(shift)

    asyncio.run(play())


def test_workers_that_found_everything_locked_take_it_when_the_lock_is_gone(postgres: PostgresLedger) -> None:
    """No notification follows a rollback: they look again by themselves."""

    async def play() -> None:
        shift = Shift()
        async with AsyncExitStack() as until:
            sender = made(postgres.url, shift)
            until.push_async_callback(sender.close)
            await enqueue(sender)
            async with a_lease_that_is_undone(postgres.url):
                apps = [await until.enter_async_context(made(postgres.url, shift)) for _ in range(WORKERS)]
                await until_polled(apps)
                assert shift.begun == 0
            await run_all(shift)

    asyncio.run(play())
