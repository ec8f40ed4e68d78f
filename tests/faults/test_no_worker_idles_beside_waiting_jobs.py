"""Four workers of one slot share two queues on Postgres: a look that met locked rows is followed by another one."""

import asyncio
from contextlib import AsyncExitStack

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


async def worker(url: str, shift: Shift, until: AsyncExitStack) -> Everpoll:
    app = Everpoll(url, slots=1)

    @app.job(name="red", queue="red")
    async def red() -> None:
        await shift.work()

    @app.job(name="blue", queue="blue")
    async def blue() -> None:
        await shift.work()

    await until.enter_async_context(app)
    return app


async def play(url: str) -> None:
    shift = Shift()
    async with AsyncExitStack() as until:
        apps = [await worker(url, shift, until) for _ in range(WORKERS)]
        for number in range(JOBS):
            await apps[0].jobs["red" if number % 2 else "blue"].enqueue()
        for ended in range(JOBS + 1):
            await shift.until_begun(min(ended + WORKERS, JOBS))
            if ended < JOBS:
                shift.running.pop(0).set()


def test_every_free_slot_takes_a_waiting_job(postgres: PostgresLedger) -> None:
    asyncio.run(play(postgres.url))
