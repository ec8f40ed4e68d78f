"""Canceling a running task: its handler is canceled, its task ends, and nothing else is touched."""

import asyncio

from engine.engine_stage import EngineStage, done, whats
from everpoll.engine.pool import Pool
from everpoll.engine.work import Run, StopReason, Work
from everpoll.stores.contract import Again, Ended, Lease, Settlement
from everpoll.stores.memory import MemoryStore

NOTE = '{"what":"cancel","why":"not wanted"}'


def test_a_cancel_reaches_the_running_handler_at_once_and_ends_the_task(stage: EngineStage) -> None:
    job = stage.handler(takes_s=60)

    async def scene() -> None:
        wanted, unwanted = await stage.put(2)
        async with stage.working(grace=100):
            await stage.clock.advance(5)
            assert await stage.store.cancel(unwanted, NOTE) == "running"
            await stage.clock.settle()
            assert job.canceled == [unwanted]
            assert job.runs[1].stop_reason is StopReason.CANCELED
            await stage.clock.advance(0.01)
            info = await stage.show(unwanted)
            assert (info.state, whats(info)) == ("canceled", ["cancel", "canceled"])
        assert (await stage.show(wanted)).state == "done"

    stage.play(scene)


def test_without_push_the_next_heartbeat_carries_the_cancel(stage: EngineStage) -> None:
    stage.without_push()
    job = stage.handler(takes_s=60)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(lease_s=30):
            await stage.clock.advance(5)
            await stage.store.cancel(task_id, NOTE)
            await stage.clock.advance(4)
            assert job.canceled == []
            await stage.clock.advance(1)  # the beat at 10 s
            assert job.canceled == [task_id]

    stage.play(scene)


def test_a_lease_that_comes_with_a_cancel_is_not_run(stage: EngineStage) -> None:
    job = stage.handler()

    async def scene() -> None:
        settled: list[Settlement] = []
        pool = Pool(stage.works, 5, lambda _incarnation, settlement, *_: settled.append(settlement))
        pool.start([Lease(1, 1, 1, "job", "default", "null", cancel_requested=True)], incarnation=9)
        assert await pool.ended(1)
        [settlement] = settled
        assert isinstance(settlement, Ended)
        assert settlement.state == "canceled"
        assert job.runs == []

    stage.play(scene)


def test_a_handler_that_ends_well_although_it_was_canceled_is_done(stage: EngineStage) -> None:
    async def stubborn(run: Run) -> Settlement:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return done(run.lease)

    stage.works.add(Work("job", "default", stubborn))

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(grace=10):
            await stage.clock.advance(5)
            await stage.store.cancel(task_id, NOTE)
            await stage.clock.advance(2)
        assert (await stage.show(task_id)).state == "done"

    stage.play(scene)


def test_a_cancel_wins_over_a_retry(stage: EngineStage) -> None:
    """The handler fails before the cancel reaches it: the task is not due again, it ends."""

    async def fails(run: Run) -> Settlement:
        await MemoryStore.cancel(stage.store, run.lease.id, NOTE)
        return Again(run.lease.id, run.lease.sequence, 5.0, note='{"what":"retry"}')

    stage.works.add(Work("job", "default", fails))

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working():
            await stage.clock.advance(20)
        assert (await stage.show(task_id)).state == "canceled"

    stage.play(scene)


def test_the_first_reason_to_stop_stands_and_a_clean_up_is_not_canceled_a_second_time(stage: EngineStage) -> None:
    """The heartbeat names a canceled task at every beat, and a shutdown may follow."""
    cleaned_up: list[int] = []

    async def cleans_up(run: Run) -> Settlement:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(5)
            cleaned_up.append(run.lease.id)
        return done(run.lease)

    stage.works.add(Work("job", "default", cleans_up))

    async def scene() -> None:
        settled: list[Settlement] = []
        pool = Pool(stage.works, 5, lambda _incarnation, settlement, *_: settled.append(settlement))
        pool.start([Lease(1, 1, 1, "job", "default", "null")], incarnation=9)
        await stage.clock.advance(1)
        for reason in (StopReason.CANCELED, StopReason.CANCELED, StopReason.SHUTDOWN):
            pool.stop(reason)
            assert (len(pool), pool.stopping) == (1, 1)
            await stage.clock.advance(1)
        assert await pool.ended(10)
        assert cleaned_up == [1]
        [settlement] = settled
        assert isinstance(settlement, Ended)
        assert settlement.state == "canceled"

    stage.play(scene)
