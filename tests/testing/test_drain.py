"""drain(app) runs what is due until nothing is, leaves what is delayed, and tells what it could not finish."""

import asyncio

import pytest

import own_threads
from everpoll import Backoff, Everpoll, Retry, Task
from everpoll.stores.contract import NewTask
from everpoll.testing import VirtualClock, drain


class Shop:
    """An app under virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.app = Everpoll("memory://", clock=self.clock)
        self.ran: list[str] = []

        @self.app.job(retry=Retry(2, Backoff("1m", jitter=0)))
        async def note(name: str) -> str:
            self.ran.append(name)
            if name == "fails":
                raise ValueError("no")
            return name

        @self.app.job()
        async def spread(width: int) -> None:
            await note.enqueue_many([(f"leaf {number}",) for number in range(width)])
            await asyncio.sleep(5)

        @self.app.job()
        async def hangs() -> None:
            await asyncio.sleep(3600)

        @self.app.loop(every="1s", first=0)
        async def tick() -> None:
            self.ran.append("tick")

        self.note, self.spread, self.hangs = note, spread, hangs


def test_what_is_due_is_run_and_what_that_enqueues_too() -> None:
    shop = Shop()

    async def scene() -> None:
        task = await shop.note.enqueue("a")
        await shop.spread.enqueue(3)
        await drain(shop.app)
        assert shop.ran == ["a", "leaf 0", "leaf 1", "leaf 2"]  # and no loop has run
        assert (await task.info()).state == "done"
        assert await task.result(timeout=0) == "a"
        assert shop.app.health().worker is None
        await shop.app.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    shop.clock.run(scene())
    assert not own_threads.started("everpoll-heartbeat")


def test_nothing_due_returns_at_once_without_a_worker() -> None:
    shop = Shop()

    async def scene() -> None:
        await shop.note.enqueue("later", delay="1h")
        await drain(shop.app)
        assert shop.clock.now() == 0
        assert await (await shop.app.store()).workers() == []
        await shop.app.close()

    shop.clock.run(scene())


def test_delayed_tasks_and_retries_stay_until_time_has_come() -> None:
    shop = Shop()

    async def scene() -> None:
        later: Task = await shop.note.enqueue("later", delay="1h")
        failing = await shop.note.enqueue("fails")
        await drain(shop.app)
        assert shop.ran == ["fails"]
        assert (await failing.info()).state == "queued"
        await shop.clock.advance("1m")
        await drain(shop.app)
        assert (await failing.info()).state == "failed"
        await shop.clock.advance("1h")
        await drain(shop.app)
        assert await later.result(timeout=0) == "later"
        assert shop.ran == ["fails", "fails", "later"]
        await shop.app.close()

    shop.clock.run(scene())


def test_too_slow_a_task_is_a_timeout_that_tells_where_and_costs_it_no_attempt() -> None:
    shop = Shop()

    async def scene() -> None:
        task = await shop.hangs.enqueue()
        with pytest.raises(TimeoutError, match="not drained within 30s: queue 'default' has 0 due and 1 running"):
            await drain(shop.app)
        info = await task.info()
        assert (info.state, info.attempt) == ("queued", 0)
        assert shop.app.health().worker is None
        await shop.app.close()

    shop.clock.run(scene())


def test_inside_a_running_app_its_own_worker_does_the_work_and_goes_on() -> None:
    shop = Shop()

    async def scene() -> None:
        async with shop.app:
            task = await shop.note.enqueue("a")
            await drain(shop.app)
            assert (await task.info()).state == "done"
            health = shop.app.health()
            assert health.worker is not None
            assert health.worker.polling
            [worker] = await (await shop.app.store()).workers()
            assert worker.is_alive

    shop.clock.run(scene())


def test_queues_that_the_app_does_not_serve_are_not_waited_for() -> None:
    shop = Shop()

    async def scene() -> None:
        await (await shop.app.store()).enqueue([NewTask(name="other", queue="of another app")])
        await shop.note.enqueue("a")
        await drain(shop.app)
        assert shop.ran == ["a"]
        await shop.app.close()

    shop.clock.run(scene())


async def test_in_real_time_too() -> None:
    app = Everpoll("memory://")

    @app.job()
    def plain(number: int) -> int:
        return number + 1

    tasks = await plain.enqueue_many([(number,) for number in range(20)])
    await drain(app, timeout="20s")
    assert [await task.result(timeout=0) for task in tasks] == list(range(1, 21))
    await app.close()
