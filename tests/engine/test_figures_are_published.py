"""What a worker did is in the store with its heartbeat, at the latest when it ends; so are the loops of its process."""

import asyncio
from pathlib import Path

import pytest

from everpoll import Everpoll, Retry
from everpoll.stores.contract import Store
from everpoll.stores.memory import MemoryStore
from everpoll.stores.urls import store_for
from everpoll.testing import VirtualClock, drain

DAY_S = 86_400.0


async def counted(store: Store, now: float, **wanted: str) -> dict[str, int]:
    """The outcomes of the last day."""
    found = await store.series("throughput", now - DAY_S, now + DAY_S, 3_600, **wanted)
    counts: dict[str, int] = {}
    for point in found:
        for outcome, count in point.counts.items():
            counts[outcome] = counts.get(outcome, 0) + count
    return counts


async def store_clock(store: Store, task_id: int) -> float:
    return (await store.info([task_id]))[task_id].created_at.timestamp()


async def test_a_worker_that_ends_has_published_everything(tmp_path: Path) -> None:
    app = Everpoll(f"sqlite:///{tmp_path / 'tasks.db'}")

    @app.job(queue="mail")
    async def send(number: int) -> None:
        if number == 3:
            raise ValueError(number)

    @app.job(retry=Retry(1))
    def fail() -> None:
        raise ValueError("no")

    async with app:
        tasks = [*await send.enqueue_many([(1,), (2,)]), await fail.enqueue()]
        await asyncio.gather(*(one.result() for one in tasks), return_exceptions=True)
    store = store_for(app.url)
    await store.open()
    try:
        now = await store_clock(store, tasks[0].id)
        assert await counted(store, now) == {"done": 2, "failed": 1}
        assert await counted(store, now, queue="mail") == {"done": 2}
        assert await counted(store, now, name="fail") == {"failed": 1}
        [waiting] = await store.series("waiting", now - 3_600, now + 3_600, 86_400)
        [running] = await store.series("running", now - 3_600, now + 3_600, 86_400)
        assert waiting.count == running.count == 3
    finally:
        await store.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_a_heartbeat_publishes_what_was_done_before_it(clock: VirtualClock) -> None:
    """Under virtual time: within ten seconds, which is a beat, and not again where nothing has changed."""
    store = MemoryStore(clock)
    app = Everpoll(store, clock=clock)

    @app.job()
    async def work() -> None:
        """Do nothing."""

    async with clock, app:
        task = await work.enqueue()
        await task.result()
        await clock.advance(11)
        assert await counted(store, clock.wall()) == {"done": 1}
        before = dict(store._figures)
        await clock.advance(30)
        assert all(store._figures[key] is one for key, one in before.items())


async def test_loops_are_published_and_change_with_their_runs(clock: VirtualClock) -> None:
    store = MemoryStore(clock)
    app = Everpoll(store, clock=clock)
    runs = 0

    @app.job()
    async def work() -> None:
        """A worker publishes the loops of its process."""

    @app.loop(every="30s", jitter=0)
    async def refresh() -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise ValueError("no answer")

    async with clock, app:
        await clock.advance(15)
        [shown] = await store.published_loops()
        [card] = shown.loops
        assert (card.name, card.phase, card.every_s, card.runs) == ("refresh", "waiting", 30.0, 0)
        assert card.next_due_at == pytest.approx(clock.wall() + 15, abs=0.2)
        await clock.advance(60)
        [shown] = await store.published_loops()
        assert (shown.loops[0].runs, shown.loops[0].failures) == (2, 1)
        assert "no answer" in str(shown.loops[0].last_error)


async def test_jobs_that_a_test_drains_are_counted(clock: VirtualClock) -> None:
    store = MemoryStore(clock)
    app = Everpoll(store, clock=clock)

    @app.job()
    async def work() -> None:
        """Do nothing."""

    async with clock:
        await work.enqueue_many([()] * 5)
        await drain(app)
        assert await counted(store, clock.wall()) == {"done": 5}
        await app.close()
