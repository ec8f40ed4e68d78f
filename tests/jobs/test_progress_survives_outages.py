"""`task.progress()` waits for a database that is away, within the job's own deadline, and costs no attempt."""

import asyncio

import pytest

from everpoll import Everpoll, LeaseLost, Retry, StoreUnavailable, Task
from everpoll.stores.contract import Ended, Lease
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock
from jobs.jobs_stage import LIMIT_S, ended


class Outage:
    """The database is away for progress: for so many calls, or until it is over."""

    def __init__(self, app: Everpoll, calls: float) -> None:
        self.calls = 0
        self.met = asyncio.Event()
        self._left = calls
        self._progress = app._store.progress
        app._store.progress = self.progress  # type: ignore[method-assign]

    def over(self) -> None:
        self._left = 0

    async def progress(self, incarnation: int, lease: Lease, progress: str) -> bool:
        self.calls += 1
        self.met.set()
        if self._left > 0:
            self._left -= 1
            raise StoreUnavailable("connection refused")
        return await self._progress(incarnation, lease, progress)


async def test_it_waits_until_the_database_is_back(app: Everpoll) -> None:
    outage = Outage(app, 3)

    @app.job(retry=Retry(3), timeout="20s")
    async def f(task: Task) -> int:
        await task.progress("half")
        return task.attempt

    async with app:
        task = await f.enqueue()
        assert await task.result(timeout=LIMIT_S) == 1
        info = await task.info()
    assert (info.progress, info.attempt, info.trail) == ("half", 1, ())
    assert outage.calls == 4


async def test_a_task_that_was_lost_meanwhile_raises_when_it_is_back(app: Everpoll) -> None:
    outage = Outage(app, float("inf"))
    raised: list[BaseException] = []

    @app.job(retry=Retry(1))
    async def f(task: Task) -> None:
        try:
            await task.progress(1)
        except LeaseLost as error:
            raised.append(error)

    async with app:
        task = await f.enqueue()
        async with asyncio.timeout(LIMIT_S):
            await outage.met.wait()
        info = await task.info()
        assert info.incarnation is not None
        await app._store.settle(info.incarnation, [Ended(task.id, 1, "canceled")])
        outage.over()
        assert (await ended(task)).state == "canceled"
        async with asyncio.timeout(LIMIT_S):
            while not raised:  # noqa: ASYNC110 - the zombie cannot report it
                await asyncio.sleep(0.01)
    assert "its lease was lost" in str(raised[0])


def virtual() -> tuple[VirtualClock, Everpoll]:
    clock = VirtualClock()
    return clock, Everpoll(MemoryStore(clock))


def test_the_jobs_own_timeout_ends_the_wait() -> None:
    clock, app = virtual()
    outage = Outage(app, float("inf"))

    @app.job(retry=Retry(1), timeout="1m")
    async def f(task: Task) -> None:
        await task.progress(1)

    async def scene() -> None:
        async with app:
            info = await ended(await f.enqueue(), limit_s=120)
        assert info.state == "failed"
        assert "took longer than its timeout of 60 s" in info.errors[0]["error"]
        assert 12 < outage.calls < 30, "it is asked ever more seldom"

    clock.run(scene())


@pytest.mark.parametrize("times", [1, 3])
def test_without_a_timeout_it_waits_for_hours(times: int) -> None:
    clock, app = virtual()
    outage = Outage(app, float("inf"))

    @app.job(retry=Retry(1))
    async def f(task: Task) -> int:
        for number in range(times):
            await task.progress(number)
        return task.attempt

    async def scene() -> None:
        async with app:
            task = await f.enqueue()
            await clock.advance(3 * 3600)
            assert (await task.info()).state == "running"
            outage.over()
            assert await task.result(timeout=10) == 1

    clock.run(scene())


def test_a_cancel_ends_the_wait() -> None:
    clock, app = virtual()
    Outage(app, float("inf"))

    @app.job(retry=Retry(1))
    async def f(task: Task) -> None:
        await task.progress(1)

    async def scene() -> None:
        async with app:
            task = await f.enqueue()
            await clock.advance(60)
            assert await task.cancel()
            await clock.advance(1)
            assert (await task.info()).state == "canceled"

    clock.run(scene())
