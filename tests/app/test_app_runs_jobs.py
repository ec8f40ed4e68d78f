"""An app with jobs in your program: again and again, on one event loop after the other, with or without a database."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

import own_threads
from everpoll import Everpoll, NotRunning, StoreUnavailable
from everpoll.stores.contract import Store
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock

LIMIT_S = 20.0


class LateStore(MemoryStore):
    """A database that is not there yet."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.tries = 0
        self.is_there = False

    async def open(self, *, migrate: bool = True) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if not self.is_there:
            raise StoreUnavailable("connection refused")
        await super().open(migrate=migrate)


def threads() -> list[str]:
    """The threads of everpoll that live on, after a moment for those that are ending."""
    for thread in own_threads.started():
        thread.join(LIMIT_S)
    return [thread.name for thread in own_threads.started()]


def squaring(url: str | Store, lease: str = "30s") -> Everpoll:
    app = Everpoll(url, lease=lease)

    @app.job(name="square")
    async def square(number: int) -> int:
        return number * number

    @app.job(name="plain")
    def plain(number: int) -> int:
        return number + 1

    return app


async def use(app: Everpoll) -> None:
    async with app:
        tasks = await asyncio.gather(*(app.jobs["square"].enqueue(number) for number in range(10)))
        assert await asyncio.gather(*(task.result(timeout=LIMIT_S) for task in tasks)) == [n * n for n in range(10)]
        assert await (await app.jobs["plain"].enqueue(1)).result(timeout=LIMIT_S) == 2
        assert app.health().healthy
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"


def test_entered_twice_on_one_event_loop_and_again_on_others(url: str) -> None:
    app = squaring(url)

    async def twice() -> None:
        await use(app)
        await use(app)

    asyncio.run(twice())
    asyncio.run(twice())
    assert threads() == []


async def enqueue(app: Everpoll) -> list[int]:
    tasks = await asyncio.gather(*(app.jobs["square"].enqueue(number) for number in range(5)))
    with pytest.raises(TimeoutError):
        await tasks[0].result(timeout="5ms")
    return [task.id for task in tasks]


async def finish(app: Everpoll, ids: list[int]) -> None:
    async with app:
        later = await app.jobs["square"].enqueue(5, delay="40ms")
        # Not by result(), which would look once more when its time is over: the waiters themselves must be told.
        async with asyncio.timeout(LIMIT_S):
            assert (await (await app.jobs.results()).wait(later.id)).result == 25
        for task_id in ids:
            await app.task(task_id).result(timeout=LIMIT_S)


def test_the_first_calls_may_come_together_on_one_event_loop_after_the_other(url: str) -> None:
    app = squaring(url)

    async def main() -> list[int]:
        try:
            return await enqueue(app)
        finally:
            await app.close()

    ids = [*asyncio.run(main()), *asyncio.run(main()), *asyncio.run(main())]
    assert len(set(ids)) == 15
    asyncio.run(finish(app, ids))
    assert threads() == []


def test_an_event_loop_that_ended_without_close_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    """The next one finds its own way to the database, and its own waiters."""
    app = squaring(f"sqlite:///{tmp_path}/tasks.db")
    ids = [*asyncio.run(enqueue(app)), *asyncio.run(enqueue(app)), *asyncio.run(enqueue(app))]
    assert len(set(ids)) == 15
    asyncio.run(finish(app, ids))
    assert threads() == []


def test_a_worker_whose_event_loop_died_is_replaced_on_the_next_one(tmp_path: Path) -> None:
    app = squaring(
        f"sqlite:///{tmp_path}/tasks.db", lease="200ms"
    )  # its heartbeat soon notices that no handler is left

    async def dies() -> None:
        await app._start_worker()

    asyncio.run(dies())

    async def lives() -> None:
        async with app:
            assert await (await app.jobs["square"].enqueue(4)).result(timeout=LIMIT_S) == 16

    asyncio.run(lives())
    assert threads() == []


async def test_use_on_two_event_loops_at_the_same_time_is_refused() -> None:
    app = squaring("memory://")
    async with app:
        with pytest.raises(NotRunning, match="in use on another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(app.jobs["square"].enqueue(1)))


async def test_close_without_start_and_close_twice() -> None:
    app = squaring("memory://")
    await app.close()
    await app.close(grace=0)
    async with app:
        pass
    await app.close()


async def test_entering_fails_clearly_where_the_database_is_not_there_and_leaves_nothing() -> None:
    app = squaring(LateStore(VirtualClock()))
    with pytest.raises(StoreUnavailable):
        await app.__aenter__()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert threads() == []


def test_run_waits_for_a_database_that_is_not_there_yet() -> None:
    clock = VirtualClock()
    store = LateStore(clock)
    app = squaring(store)

    async def scene() -> None:
        running = asyncio.ensure_future(app.run())
        await clock.advance(3600)
        # It goes on trying, at a bounded pace: an hour costs some hundreds of tries, and recovery some seconds.
        assert 700 <= store.tries <= 1000
        assert not running.done()
        store.is_there = True
        await clock.advance(6)
        task = await app.jobs["square"].enqueue(3)
        assert await task.result(timeout=5) == 9
        os.kill(os.getpid(), signal.SIGTERM)
        await running

    clock.run(scene())
    assert threads() == []


@pytest.mark.parametrize("wanted", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_on_a_signal_while_it_waits_for_the_database(wanted: signal.Signals) -> None:
    clock = VirtualClock()
    app = squaring(LateStore(clock))

    async def scene() -> None:
        running = asyncio.ensure_future(app.run())
        await clock.advance(60)
        before = clock.now()
        os.kill(os.getpid(), wanted)
        await running
        assert clock.now() == before
        assert asyncio.all_tasks() == {asyncio.current_task()}

    clock.run(scene())
    assert threads() == []


def test_run_ends_by_cancellation_while_it_waits_for_the_database() -> None:
    clock = VirtualClock()
    app = squaring(LateStore(clock))

    async def scene() -> None:
        running = asyncio.ensure_future(app.run())
        await clock.advance(60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    clock.run(scene())


@pytest.mark.parametrize(("signals", "ends_at"), [(1, 11), (2, 3)])
def test_a_signal_gives_the_grace_period_and_a_second_one_ends_it_at_once(signals: int, ends_at: float) -> None:
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock)
    canceled: list[float] = []

    @app.job()
    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            canceled.append(clock.now())
            raise

    async def scene() -> None:
        running = asyncio.ensure_future(app.run(grace="10s"))
        task = await endless.enqueue()
        await clock.advance(1)
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
            await clock.advance(2)
        await running
        assert canceled == [pytest.approx(ends_at, abs=0.01)]
        info = await task.info()
        assert (info.state, info.attempt) == ("queued", 0)
        await app.close()

    clock.run(scene())
    assert threads() == []


def test_an_error_in_the_block_hands_running_jobs_back_at_once() -> None:
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock)

    @app.job()
    async def endless() -> None:
        await asyncio.sleep(3600)

    async def scene() -> None:
        task = await endless.enqueue()

        async def block() -> None:
            async with app:
                await clock.advance(1)
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await block()
        assert clock.now() == pytest.approx(1, abs=0.01)
        info = await task.info()
        assert (info.state, info.attempt) == ("queued", 0)
        await app.close()

    clock.run(scene())


def test_health_of_the_app_is_that_of_its_poller() -> None:
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock)

    @app.job()
    async def f() -> None: ...

    async def scene() -> None:
        assert app.health().worker is None
        async with app:
            await clock.advance(1)
            health = app.health()
            assert health.healthy
            assert health.worker is not None
            assert health.worker.polling
            assert health.worker.push
        assert app.health().worker is None

    clock.run(scene())
