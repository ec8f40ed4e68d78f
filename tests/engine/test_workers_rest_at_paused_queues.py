"""Workers whose queues are paused rest as workers without work do, and begin at once when the queue is resumed."""

from engine.engine_stage import EngineStage
from everpoll.stores.contract import NewTask

HOUR_S = 3600.0


def test_an_hour_of_pause_costs_as_many_looks_as_an_hour_without_work(stage: EngineStage) -> None:
    """Tasks that are due, that fall due and that are enqueued meanwhile do not make a worker look again and again."""
    job = stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(HOUR_S)
            idle = len(stage.store.looks)
            await stage.store.pause("default", "broken", "ops")
            for number in range(20):
                await stage.store.enqueue([NewTask(name="job", delay_s=number * 60.0)])
            before = len(stage.store.looks)
            await stage.clock.advance(HOUR_S)
            assert len(stage.store.looks) - before <= idle + 21, "one for each enqueue, and those of any hour"
            assert job.at == []
            resumed_at = stage.clock.now()
            await stage.store.resume("default", "ops")
            await stage.clock.advance(1.0)
            assert len(job.at) == 20
            assert job.at[0] - resumed_at < 0.1, "a resume wakes workers"

    stage.play(scene)


def test_without_push_the_rests_go_on_as_those_of_empty_looks(stage: EngineStage) -> None:
    store = stage.without_push()
    job = stage.handler()

    async def scene() -> None:
        await store.pause("default", "", "")
        async with stage.working():
            await stage.put(delay_s=10.0)
            await stage.clock.advance(120.0)
            assert len(store.looks) < 20
            assert job.at == []
            await store.resume("default", "")
            await stage.clock.advance(31.0)
            assert len(job.at) == 1

    stage.play(scene)


def test_one_paused_queue_holds_up_no_other(stage: EngineStage) -> None:
    stopped, served = stage.handler("a", queue="stopped"), stage.handler("b", queue="served")

    async def scene() -> None:
        await stage.store.pause("stopped", "", "")
        async with stage.working():
            await stage.store.enqueue([NewTask(name="a", queue="stopped"), NewTask(name="b", queue="served")])
            await stage.clock.advance(1.0)
            assert (len(stopped.at), len(served.at)) == (0, 1)
            await stage.store.resume("stopped", "")
            await stage.clock.advance(1.0)
            assert len(stopped.at) == 1

    stage.play(scene)
