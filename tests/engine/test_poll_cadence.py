"""When the poller looks: often without push, rarely beneath it, and always at the next due time."""

import asyncio
from itertools import pairwise

import pytest

from engine.engine_stage import EngineStage, Look, SpyStore
from everpoll.engine.options import WorkerOptions
from everpoll.engine.poller import DUE_SLACK_S, DUE_TOGETHER_S
from everpoll.engine.work import Work, WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.stores.contract import Ended, Leased, NewTask
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock

ROUNDED_S = 1e-5
"""Due times are kept to the microsecond."""
EMPTY_RESTS = [5, 5, 7.5, 11.25, 16.875, 25.3125, 30, 30]


class Chance:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def waits(instants: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(instants)]


def test_the_rests_of_empty_looks_are_5_5_7_5_11_25_16_875_25_3125_30_30(stage: EngineStage) -> None:
    store = stage.without_push()
    stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(sum(EMPTY_RESTS))
            assert waits(store.looked_at) == pytest.approx(EMPTY_RESTS)

    stage.play(scene)


def test_a_found_row_resets_to_the_base(stage: EngineStage) -> None:
    store = stage.without_push()
    job = stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(30)  # looked at 0, 5, 10, 17.5 and 28.75; the next one is due at 45.625
            await stage.put()
            await stage.clock.advance(40)
        assert job.at == [45.625]
        assert store.looked_at[4:] == pytest.approx([28.75, 45.625, 45.625, 50.625, 55.625, 63.125])

    stage.play(scene)


def test_a_row_is_picked_up_within_the_base_interval_by_polling_alone(stage: EngineStage) -> None:
    stage.without_push()
    job = stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(0.5)
            await stage.put()
            await stage.clock.advance(10)
        assert job.at == [5.0]

    stage.play(scene)


def test_there_is_no_sleep_between_full_claims(stage: EngineStage) -> None:
    job = stage.handler()

    async def scene() -> None:
        await stage.put(2_345)
        async with stage.working(slots=1_000):
            await stage.clock.advance(1)
        assert len(job.at) == 2_345
        found = [look.found for look in stage.store.looks]
        assert found == [500, 500, 500, 500, 345]
        # Nothing but the moments in which settlements gather and a slot becomes free lies between the looks.
        assert stage.store.looks[4].at < 0.05

    stage.play(scene)


@pytest.mark.parametrize(("chance", "expected"), [(0.5, [30, 60, 60]), (0.0, [27, 54, 54]), (0.999, [32.994, 60, 60])])
def test_under_push_the_safety_net_looks_every_30_s_and_never_rests_longer_than_60(
    stage: EngineStage, chance: float, expected: list[float]
) -> None:
    stage.handler()

    async def scene() -> None:
        async with stage.working() as worker:
            worker._poller._rng = Chance(chance)  # type: ignore[assignment]
            await stage.clock.advance(sum(expected))
        assert waits(stage.store.looked_at) == pytest.approx(expected)

    stage.play(scene)


def test_a_wake_up_is_followed_at_once(stage: EngineStage) -> None:
    job = stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(12)
            await stage.put()
            stage.store.wake()
            await stage.clock.settle()
            assert job.at == [12]

    stage.play(scene)


def test_after_a_reconnect_the_poller_looks_at_once_and_a_wake_up_during_a_look_is_not_lost(
    stage: EngineStage,
) -> None:
    job = stage.handler()
    stage.store.takes_s["lease"] = 1.0

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(0.5)  # the first look has seen the store, and its answer is on its way
            await stage.put()
            stage.store.wake()
            await stage.clock.advance(2)
            assert job.at == [2]

    stage.play(scene)


def test_a_rest_ends_at_the_next_due_time(stage: EngineStage) -> None:
    job = stage.handler()

    async def scene() -> None:
        await stage.put(delay_s=7)
        await stage.put(delay_s=19)
        async with stage.working():
            await stage.clock.advance(25)
        assert job.at == pytest.approx([7, 19], abs=0.002)
        # Never a tick: one look at the start, one for each due time, none in between.
        assert len(stage.store.looks) == 3

    stage.play(scene)


def test_due_times_of_queues_that_are_not_served_wake_no_worker(stage: EngineStage) -> None:
    stage.handler()

    async def scene() -> None:
        await stage.put(delay_s=7, queue="elsewhere")
        async with stage.working():
            await stage.clock.advance(20)
        assert len(stage.store.looks) == 1

    stage.play(scene)


def test_a_handler_that_blocks_between_looks_does_not_make_the_poller_race(stage: EngineStage) -> None:
    """With nothing to find, a worker at rest asks nothing: an hour under push costs about 60 looks."""
    stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(3600)
        assert 60 <= len(stage.store.looks) <= 70

    stage.play(scene)


def test_a_push_that_stops_working_is_replaced_by_polling(stage: EngineStage) -> None:
    """`has_push` is read at every rest: a self-test that fails later falls back, visibly, to polling."""
    stage.handler()

    async def scene() -> None:
        async with stage.working() as worker:
            await asyncio.sleep(0)
            assert worker.health().push
            stage.store.has_push = False
            stage.store.wake()
            await stage.clock.advance(17.5)
            assert not worker.health().push
            assert waits(stage.store.looked_at)[-3:] == [5, 5, 7.5]

    stage.play(scene)


def test_a_due_row_that_another_worker_holds_is_not_asked_for_a_thousand_times_a_second() -> None:
    class Held(MemoryStore):
        looks = 0

        async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
            self.looks += 1
            return Leased([], -1.0)

    async def never(_: object) -> Ended:
        raise AssertionError("nothing is leased")

    clock = VirtualClock()
    store = Held(clock)

    async def scene() -> None:
        works = WorkRegistry()
        works.add(Work("job", "default", never))
        worker = Worker(store, works, WorkerOptions(keep_s=None))
        await worker.start()
        await clock.advance(1)
        await worker.stop()

    clock.run(scene())
    assert 10 <= store.looks <= 25


def test_a_look_that_found_all_there_was_is_not_made_again_under_push(stage: EngineStage) -> None:
    """A job costs one look: what comes next wakes the poller, or was told with the answer."""
    job = stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(1)
            before = len(stage.store.looks)
            for _ in range(5):
                await stage.put()
                stage.store.wake()
                await stage.clock.advance(1)
            assert len(job.at) == 5
            assert len(stage.store.looks) - before == 5

    stage.play(scene)


def test_without_push_a_look_that_found_something_is_made_again_at_once(stage: EngineStage) -> None:
    store = stage.without_push()
    job = stage.handler()

    async def scene() -> None:
        await stage.put()
        async with stage.working():
            await stage.clock.advance(1)
        assert [look.found for look in store.looks] == [1, 0]
        assert len(job.at) == 1

    stage.play(scene)


def test_what_a_full_queue_still_has_is_run_as_soon_as_a_slot_is_free(stage: EngineStage) -> None:
    """It gave as much as it had room for, which is not all: resting on that would leave the rest for half a minute."""
    job = stage.handler(takes_s=0.1)

    async def scene() -> None:
        async with stage.working(slots=10, queues={"default": 2}):
            await stage.clock.advance(1)
            await stage.put(6)
            stage.store.wake()
            await stage.clock.advance(1)
            assert len(job.at) == 6

    stage.play(scene)


def test_a_wake_up_for_what_falls_due_after_the_next_look_is_slept_through(stage: EngineStage) -> None:
    job = stage.handler()

    async def scene() -> None:
        await stage.put(delay_s=10)
        async with stage.working():
            await stage.clock.advance(1)
            before = len(stage.store.looks)
            await stage.store.enqueue([NewTask(name="job", delay_s=20.0)])
            await stage.clock.advance(1)
            assert len(stage.store.looks) == before
            await stage.store.enqueue([NewTask(name="job", delay_s=3.0)])
            await stage.clock.advance(30)
        assert job.at == pytest.approx([5, 10, 21], abs=0.002)

    stage.play(scene)


def test_after_a_request_to_cancel_nothing_is_slept_through(stage: EngineStage) -> None:
    """What a run settles may be due sooner than it says: the request came while it ran."""
    stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(1)
            stage.store.wake(cancel=True)
            await stage.clock.advance(1)
            before = len(stage.store.looks)
            await stage.store.enqueue([NewTask(name="job", delay_s=3600.0)])
            await stage.clock.advance(1)
            assert len(stage.store.looks) == before + 1

    stage.play(scene)


def test_what_falls_due_within_5_ms_is_leased_by_one_look(stage: EngineStage) -> None:
    """A hundred tasks, due a millisecond apart, would otherwise take a hundred looks; none runs more than 6 ms late."""
    job = stage.handler()

    async def scene() -> None:
        for nth in range(100):
            await stage.put(delay_s=1 + nth / 1_000)
        async with stage.working():
            await stage.clock.advance(2)
        late_s = [at - (1 + nth / 1_000) for nth, at in enumerate(job.at)]
        assert len(late_s) == 100
        assert min(late_s) >= -ROUNDED_S
        assert max(late_s) <= DUE_TOGETHER_S + DUE_SLACK_S + ROUNDED_S
        assert len([look for look in stage.store.looks if look.found]) <= 25

    stage.play(scene)


class LockedStore(SpyStore):
    """Something is due, and another transaction has it locked for as long as `is_locked`."""

    is_locked = True

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        if not self.is_locked:
            return await super().lease(incarnation, rooms, most)
        self.looks.append(Look(self.clock.now(), dict(rooms), most, 0))
        return Leased([], next_due_s=0.0, is_all=False)


@pytest.mark.parametrize("has_push", [True, False], ids=["push", "polling"])
def test_what_is_due_and_locked_is_looked_at_again_within_100_ms(stage: EngineStage, has_push: bool) -> None:
    """However long the lock is held: the rests do not grow."""
    stage.store = store = LockedStore(stage.clock, has_push=has_push)
    job = stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.put()
            await stage.clock.advance(60)
            assert max(waits(store.looked_at)) <= 0.1
            store.is_locked = False
            released_at = stage.clock.now()
            await stage.clock.advance(0.1)
            assert released_at <= job.at[0] <= released_at + 0.1

    stage.play(scene)
