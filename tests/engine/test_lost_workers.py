"""A worker that cannot prove that it is alive: it fences itself, drops what it lost, and goes on under a new name."""

import logging

import pytest

from engine.engine_stage import EngineStage, whats
from everpoll.engine.work import StopReason
from everpoll.policy import Backoff
from everpoll.stores.contract import DEADLINE_GRACE_S, Beat


def test_a_worker_without_a_beat_for_two_thirds_of_its_lease_cancels_its_handlers_and_hands_back(
    stage: EngineStage, caplog: pytest.LogCaptureFixture
) -> None:
    job = stage.handler(takes_s=100)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(lease_s=30):
            await stage.clock.advance(5)
            stage.store.is_down = True
            await stage.clock.advance(14)
            assert job.canceled == []
            await stage.clock.advance(6)  # the beats at 10 and 20 s have failed
            assert job.canceled == [task_id]
            assert job.runs[0].stop_reason is StopReason.FENCED
            stage.store.is_down = False
            await stage.clock.advance(120)
            info = await stage.show(task_id)
            assert (info.state, info.attempt, info.rescues) == ("done", 1, 0)
            assert whats(info) == ["hand-back"]
            assert "could not reach the database" in info.trail[0]["why"]

    stage.play(scene)
    assert any("canceling 1 handlers" in one.message for one in caplog.records)


def test_invariant_5_a_worker_whose_heart_is_silent_leases_nothing_until_it_beats_again(stage: EngineStage) -> None:
    """Only the heartbeat's way to the database is cut: what it leased would be leased for the rescue."""
    job = stage.handler()

    async def scene() -> None:
        async with stage.working(lease_s=30):
            await stage.clock.advance(5)
            stage.store.fail("beat", times=100_000)
            await stage.clock.advance(30)
            [task_id] = await stage.put(1)
            await stage.clock.advance(300)
            assert (job.runs, (await stage.show(task_id)).state) == ([], "queued")
            stage.store.errors["beat"].clear()
            await stage.clock.advance(60)
            assert len(job.runs) == 1

    stage.play(scene)


def test_invariant_10_an_outage_of_an_hour_loses_nothing_and_ends_no_worker(stage: EngineStage) -> None:
    job = stage.handler(takes_s=3)

    async def scene() -> None:
        ids = await stage.put(10)
        async with stage.working(lease_s=30, slots=4) as worker:
            await stage.clock.advance(2)
            stage.store.is_down = True
            await stage.clock.advance(3600)
            assert not worker.health().healthy
            stage.store.is_down = False
            await stage.clock.advance(60)
            assert worker.health().healthy
            infos = [await stage.show(task_id) for task_id in ids]
        assert [info.state for info in infos] == ["done"] * 10
        assert [info.attempt for info in infos] == [1] * 10
        # The four that had ended during the outage were settled, not run again.
        assert len(job.runs) == 10

    stage.play(scene)


def test_a_worker_given_up_for_dead_drops_its_results_signs_on_anew_and_goes_on(
    stage: EngineStage, caplog: pytest.LogCaptureFixture
) -> None:
    job = stage.handler(takes_s=20)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(lease_s=30, grace=20) as worker:
            await stage.clock.advance(5)
            first = worker.incarnation
            await stage.bury(first)
            await stage.clock.advance(6)  # the beat at 10 s learns it
            assert job.runs[0].stop_reason is StopReason.LOST
            assert job.canceled == [task_id]
            assert worker.incarnation != first
            await stage.clock.advance(10)
            assert [run.incarnation for run in job.runs] == [first, worker.incarnation]
            assert len({run.fence for run in job.runs}) == 2
        info = await stage.show(task_id)
        assert (info.state, info.attempt, info.rescues, info.incarnation) == ("done", 1, 1, worker.incarnation)
        assert len(await stage.store.losses(task_id)) == 1

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    assert any("declared dead" in one.message for one in caplog.records)


def test_a_late_beat_of_an_earlier_life_does_not_touch_the_handlers_of_this_one(stage: EngineStage) -> None:
    """The heart's thread tells through the event loop: what it told may arrive after the worker has signed on anew."""
    job = stage.handler(takes_s=20)

    async def scene() -> None:
        async with stage.working(lease_s=30, grace=30) as worker:
            await stage.clock.settle()
            earlier = worker.incarnation
            await stage.bury(earlier)
            await stage.put(1)
            stage.store.wake()
            await stage.clock.advance(1)
            assert worker.incarnation != earlier
            worker._on_beat(earlier, Beat(is_alive=False))
            worker._on_beat(earlier, Beat(is_alive=True, canceled=(1,)))
            await stage.clock.settle()
            assert (job.under_way, job.canceled) == (1, [])

    stage.play(scene)


def test_a_zombie_that_wakes_up_past_its_lease_changes_nothing(stage: EngineStage) -> None:
    """Frozen with SIGSTOP past its lease while another worker took over; then it goes on, and is told."""
    job = stage.handler(takes_s=50)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        # Its poller is frozen as well: it does not look before it is too late.
        never = Backoff("1h", cap="1h", jitter=0)
        async with stage.working(lease_s=30, label="zombie", safety_poll=never) as zombie:
            await stage.clock.advance(1)
            frozen = zombie.incarnation
            stage.frozen.add(frozen)
            async with stage.working(lease_s=30, label="heir", grace=100):
                await stage.clock.advance(45)
                # Taken over by the heir within the lease and one of its beats; the zombie's handler still runs.
                assert (await stage.show(task_id)).worker == "heir"
                assert job.under_way == 2
                stage.frozen.clear()
                await stage.clock.advance(4)
                assert job.under_way == 1
            info = await stage.show(task_id)
            assert (info.state, info.worker, info.attempt, info.rescues) == ("done", "heir", 1, 1)

    stage.play(scene)


def test_a_worker_that_fell_silent_and_was_given_up_signs_on_anew_and_leases_again(stage: EngineStage) -> None:
    """Its own silence has paused its looks, and only a look can tell it that it was given up."""
    job = stage.handler()

    async def scene() -> None:
        async with stage.working(lease_s=30, label="silent") as silent:
            await stage.clock.advance(1)
            before = silent.incarnation
            silent._on_silence(25.0)
            silent._on_beat(before, Beat(is_alive=False))
            await stage.store.sign_off(before)
            await stage.put(1)
            await stage.clock.advance(5)
            assert silent.incarnation != before
            assert len(job.runs) == 1

    stage.play(scene)


def test_results_computed_during_an_outage_are_settled_if_the_lease_still_holds(stage: EngineStage) -> None:
    job = stage.handler(takes_s=10)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(lease_s=60):
            await stage.clock.advance(5)
            stage.store.is_down = True
            await stage.clock.advance(20)
            stage.store.is_down = False
            await stage.clock.advance(6)
        info = await stage.show(task_id)
        assert (info.state, info.attempt, len(job.runs)) == ("done", 1, 1)

    stage.play(scene)


def test_what_another_worker_lost_is_picked_up_at_once_after_the_rescue(stage: EngineStage) -> None:
    """Invariant 5: within the lease and one rescue period, which is a beat."""
    job = stage.handler(takes_s=1)

    async def scene() -> None:
        other = stage.worker(lease_s=30, label="dies")
        await stage.put(1)
        await other.start()
        await stage.clock.settle()
        assert other._polling is not None
        other._polling.cancel()
        for task in list(other._pool._carriers.values()):
            assert task is not None
            task.cancel()
        stage.frozen.add(other.incarnation)
        job.at.clear()
        # Its settlement, a hand-back, dies with it.
        await other._settler.stop()
        async with stage.working(lease_s=30):
            await stage.clock.advance(45)
        [at] = job.at
        assert 30 <= at <= 40
        heart = other._heartbeat
        assert heart is not None
        await heart.stop()

    stage.play(scene)


def test_a_handler_past_its_deadline_is_rescued_although_its_worker_lives(stage: EngineStage) -> None:
    """The front ends its handlers at their timeout; where it cannot, because one blocks, the rescue does."""
    stage.handler(takes_s=100, timeout_s=10.0)

    async def scene() -> None:
        [task_id] = await stage.put(1, timeout_s=10.0)
        async with stage.working(lease_s=3):
            await stage.clock.advance(10 + DEADLINE_GRACE_S + 2)
            info = await stage.show(task_id)
            assert (info.rescues, info.trail[0]["why"]) == (1, "it ran past its deadline")

    stage.play(scene)


def test_signing_on_waits_for_a_database_that_is_away(stage: EngineStage) -> None:
    job = stage.handler()
    stage.store.fail("sign_on", 6)

    async def scene() -> None:
        await stage.put(1)
        async with stage.working() as worker:
            await stage.clock.advance(60)
            assert worker.health().healthy
        assert len(job.at) == 1

    stage.play(scene)


def test_a_worker_that_learns_of_its_death_by_a_look_stops_its_handlers_before_it_signs_on_anew(
    stage: EngineStage,
) -> None:
    """No beat comes in between, and the old heartbeat is silenced: only the next look can tell them."""
    job = stage.handler(takes_s=1_000)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(lease_s=600) as worker:
            await stage.clock.advance(1)
            await stage.bury(worker.incarnation)
            stage.store.wake()
            await stage.clock.advance(1)
            assert job.canceled == [task_id]
            assert job.runs[0].stop_reason is StopReason.LOST
            assert len(job.runs) == 2  # under the new incarnation

    stage.play(scene)
