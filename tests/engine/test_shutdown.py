"""Shutting down takes no new work, gives the grace period, and hands back the rest for free."""

import asyncio
import logging

import pytest

from engine.engine_stage import EngineStage, done, whats
from everpoll.engine import pool as pool_module
from everpoll.engine.pool import Pool
from everpoll.engine.work import Run, StopReason, Work
from everpoll.engine.worker import CANCEL_S, POLL_END_S, SETTLE_S, Worker
from everpoll.stores.contract import Lease, Settlement
from everpoll.stores.memory import MemoryStore


async def nothing_is_left(stage: EngineStage) -> None:
    """No task, and no beat in the hour to come."""
    beats = len(stage.store.beats)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await stage.clock.advance(3600)
    assert len(stage.store.beats) == beats


def test_no_new_work_is_taken_once_it_stops(stage: EngineStage) -> None:
    job = stage.handler(takes_s=5)

    async def scene() -> None:
        await stage.put(1)
        worker = stage.worker()
        await worker.start()
        await stage.clock.advance(1)
        stopping = asyncio.ensure_future(worker.stop("10s"))
        await stage.clock.settle()
        late = await stage.put_one()
        stage.store.wake()
        await stopping
        assert stage.clock.now() == pytest.approx(5, abs=0.01)
        assert len(job.runs) == 1
        assert (await stage.show(late)).state == "queued"

    stage.play(scene)


def test_handlers_that_end_within_the_grace_period_are_done(stage: EngineStage) -> None:
    job = stage.handler(takes_s=8)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(grace=10):
            await stage.clock.advance(1)
        assert job.canceled == []
        assert (await stage.show(task_id)).state == "done"
        assert stage.clock.now() == pytest.approx(8, abs=0.01)

    stage.play(scene)


def test_what_is_unfinished_after_the_grace_period_is_canceled_and_handed_back_without_using_an_attempt(
    stage: EngineStage,
) -> None:
    job = stage.handler(takes_s=60)

    async def scene() -> None:
        ids = await stage.put(3)
        before = [await stage.show(task_id) for task_id in ids]
        async with stage.working(grace=3):
            await stage.clock.advance(1)
        assert stage.clock.now() == pytest.approx(4, abs=0.01)
        assert sorted(job.canceled) == ids
        assert {run.stop_reason for run in job.runs} == {StopReason.SHUTDOWN}
        for old, task_id in zip(before, ids, strict=True):
            info = await stage.show(task_id)
            assert (info.state, info.attempt, info.rescues) == ("queued", 0, 0)
            assert info.due_at == old.due_at  # it keeps its place in the line
            assert whats(info) == ["hand-back"]
            assert info.trail[0]["why"] == "its worker shuts down"
        [card] = await stage.store.workers()
        assert card.stopped_at is not None

    stage.play(scene)


def test_a_handler_that_fails_in_its_clean_up_is_still_settled_once(stage: EngineStage) -> None:
    async def fails(_run: Run) -> Settlement:
        try:
            await asyncio.sleep(60)
        finally:
            raise LookupError("clean-up")

    stage.works.add(Work("job", "default", fails))

    async def scene() -> None:
        await stage.put(1)
        async with stage.working():
            await stage.clock.advance(1)
        assert [len(batch) for batch in stage.store.settles] == [1]

    stage.play(scene)


def test_heartbeats_go_on_until_the_last_handler_has_ended_and_then_stop(stage: EngineStage) -> None:
    stage.handler(takes_s=25)

    async def scene() -> None:
        await stage.put(1)
        async with stage.working(grace=60, lease_s=30):
            await stage.clock.advance(1)
        assert stage.store.beats == [0, 10, 20]
        await nothing_is_left(stage)

    stage.play(scene)


def test_a_cancel_is_still_heard_during_the_grace_period(stage: EngineStage) -> None:
    job = stage.handler(takes_s=25)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        worker = stage.worker()
        await worker.start()
        await stage.clock.advance(1)
        stopping = asyncio.ensure_future(worker.stop(20))
        await stage.clock.advance(1)
        await stage.store.cancel(task_id, '{"what":"cancel"}')
        await stopping
        assert stage.clock.now() == pytest.approx(2, abs=0.01)
        assert job.canceled == [task_id]
        assert (await stage.show(task_id)).state == "canceled"

    stage.play(scene)


def test_stop_twice_one_after_the_other_together_and_before_start(stage: EngineStage) -> None:
    stage.handler()

    async def scene() -> None:
        never = stage.worker()
        await never.stop()
        worker = stage.worker()
        await worker.start()
        await asyncio.gather(worker.stop(), worker.stop())
        await worker.stop()
        assert stage.store.calls.count("sign_off") == 1
        await nothing_is_left(stage)

    stage.play(scene)


def test_a_handler_that_suppresses_its_cancellation_does_not_block_shutdown(
    stage: EngineStage, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[float] = []

    async def deaf(run: Run) -> Settlement:
        for _ in range(3):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue
        ended.append(stage.clock.now())
        return done(run.lease)

    stage.works.add(Work("job", "default", deaf))

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(grace=3):
            await stage.clock.advance(1)
        assert stage.clock.now() == pytest.approx(1 + 3 + CANCEL_S, abs=0.01)
        info = await stage.show(task_id)
        assert (info.state, info.attempt, whats(info)) == ("queued", 0, ["hand-back"])
        await stage.clock.advance(600)
        assert ended
        # What it returned in the end was not settled: it had been handed back.
        assert (await stage.show(task_id)).state == "queued"
        assert [len(batch) for batch in stage.store.settles] == [1]

    stage.play(scene)
    assert any("does not end although it was canceled" in one.message for one in caplog.records)


def test_a_look_under_way_ends_first_and_what_it_leased_is_handed_back(stage: EngineStage) -> None:
    """Canceled in the middle, the lease would be committed without a worker to run it, until the rescue finds it."""
    job = stage.handler()
    stage.store.takes_s["lease"] = 1.0

    async def scene() -> None:
        ids = await stage.put(3)
        async with stage.working(grace=0):
            await stage.clock.advance(0.5)
            assert [(await stage.show(task_id)).state for task_id in ids] == ["running"] * 3
        assert stage.clock.now() == pytest.approx(1, abs=0.01)
        assert job.runs == []
        infos = [await stage.show(task_id) for task_id in ids]
        assert [(info.state, info.attempt, info.rescues) for info in infos] == [("queued", 0, 0)] * 3

    stage.play(scene)


def test_a_look_that_hangs_does_not_block_shutdown(stage: EngineStage) -> None:
    stage.handler()
    stage.store.takes_s["lease"] = 10_000

    async def scene() -> None:
        async with stage.working(grace=0):
            await stage.clock.advance(1)
        assert stage.clock.now() == pytest.approx(1 + POLL_END_S, abs=0.01)
        await nothing_is_left(stage)

    stage.play(scene)


def test_shutdown_during_an_outage_is_bounded_and_leaves_the_rest_to_the_rescue(
    stage: EngineStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.handler(takes_s=60)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(grace=3):
            await stage.clock.advance(1)
            stage.store.fail("settle", 1_000)
            stage.store.fail("sign_off", 1)
        assert stage.clock.now() <= 1 + 3 + CANCEL_S + SETTLE_S + 0.1
        assert (await stage.show(task_id)).state == "running"
        await nothing_is_left(stage)

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    answer = " ".join(one.message for one in caplog.records)
    assert "1 tasks could not be settled; the rescue will find them" in answer
    assert "cannot sign off" in answer


def test_shutdown_while_the_database_is_away_altogether_silences_the_heart(stage: EngineStage) -> None:
    """A heart that went on beating for a worker that is gone would keep its tasks from being rescued for ever."""
    stage.handler(takes_s=60)

    async def scene() -> None:
        await stage.put(1)
        worker = stage.worker()
        await worker.start()
        await stage.clock.advance(1)
        stage.store.is_down = True
        await worker.stop(0)
        await nothing_is_left(stage)

    stage.play(scene)


def test_canceling_stop_cuts_the_grace_period_short_and_still_hands_back(stage: EngineStage) -> None:
    """What a second signal does."""
    job = stage.handler(takes_s=600)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        worker = stage.worker()
        await worker.start()
        await stage.clock.advance(1)
        stopping = asyncio.ensure_future(worker.stop("5m"))
        await stage.clock.advance(1)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert stage.clock.now() == pytest.approx(2, abs=0.01)
        assert job.canceled == [task_id]
        info = await stage.show(task_id)
        assert (info.state, info.attempt) == ("queued", 0)
        await nothing_is_left(stage)

    stage.play(scene)


def test_stop_while_signing_on_anew_waits_for_no_database(stage: EngineStage) -> None:
    stage.handler()

    async def scene() -> None:
        async with stage.working(grace=0) as worker:
            await stage.clock.settle()
            await stage.bury(worker.incarnation)
            stage.store.fail("sign_on", 10_000)
            stage.store.wake()
            await stage.clock.advance(30)
        assert stage.clock.now() <= 30 + POLL_END_S + 0.1
        await nothing_is_left(stage)

    stage.play(scene)


def test_a_start_that_is_canceled_while_the_database_is_away_leaves_nothing(stage: EngineStage) -> None:
    stage.handler()
    stage.store.fail("sign_on", 10_000)

    async def scene() -> None:
        starting = asyncio.ensure_future(stage.worker().start())
        await stage.clock.advance(100)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert stage.store.beats == []
        await nothing_is_left(stage)

    stage.play(scene)


def test_a_worker_can_be_followed_by_another_on_the_same_store(stage: EngineStage) -> None:
    job = stage.handler(takes_s=10)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        async with stage.working(grace=0, label="first"):
            await stage.clock.advance(1)
        async with stage.working(grace=20, label="second"):
            await stage.clock.advance(1)
        info = await stage.show(task_id)
        assert (info.state, info.worker, info.attempt, len(job.runs)) == ("done", "second", 1, 2)
        workers = await MemoryStore.workers(stage.store)
        assert len({one.incarnation for one in workers}) == 2

    stage.play(scene)


def test_a_handler_canceled_by_other_code_is_handed_back(stage: EngineStage) -> None:
    """Not by the engine: the event loop is being torn down, for instance. The task must not be lost."""
    job = stage.handler(takes_s=60)

    async def scene() -> None:
        [task_id] = await stage.put(1)
        worker: Worker
        async with stage.working() as worker:
            await stage.clock.advance(1)
            [task] = worker._pool._carriers.values()
            job.takes_s = 1
            assert task is not None
            task.cancel()
            await stage.clock.advance(5)
        info = await stage.show(task_id)
        assert (info.state, info.attempt) == ("done", 1)
        assert info.trail[0]["why"] == "its handler was canceled from outside"

    stage.play(scene)


def test_what_has_not_begun_is_handed_back_at_once_and_never_begins(
    stage: EngineStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds are leased and wait for their turn: the grace period is for what has begun."""
    monkeypatch.setattr(pool_module, "CARRY_S", -1.0)
    stopping: list[asyncio.Future[None]] = []

    async def first_stops(run: Run) -> Settlement:
        began.append(run.lease.id)
        if not stopping:
            stopping.append(asyncio.ensure_future(worker.stop("1h")))
        return done(run.lease)

    began: list[int] = []
    stage.works.add(Work("job", "default", first_stops))
    worker: Worker

    async def scene() -> None:
        nonlocal worker
        ids = await stage.put(300)
        worker = stage.worker(slots=300)
        await worker.start()
        await stage.clock.settle()
        await stopping[0]
        assert stage.clock.now() == pytest.approx(0, abs=0.1)
        assert len(began) < 10
        infos = [await stage.show(task_id) for task_id in ids]
        assert {(one.state, one.attempt) for one in infos if one.id not in began} == {("queued", 0)}
        assert {one.state for one in infos if one.id in began} == {"done"}
        assert {whats(one)[0] for one in infos if one.id not in began} == {"hand-back"}

    stage.play(scene)


@pytest.mark.parametrize("reason", list(StopReason))
def test_a_run_that_is_stopped_before_it_began_is_settled_on_the_spot_and_once(
    stage: EngineStage, reason: StopReason
) -> None:
    job = stage.handler()

    async def scene() -> None:
        settled: list[int] = []
        pool = Pool(stage.works, 5, lambda _incarnation, settlement, *_: settled.append(settlement.id))
        pool.start([Lease(number, 1, 1, "job", "default", "null") for number in range(4)], incarnation=9)
        pool.stop(reason, [1, 2])
        assert settled == [1, 2]
        pool.stop_waiting(reason)
        assert (settled, len(pool), pool.free) == ([1, 2, 0, 3], 0, 5)
        pool.start([Lease(4, 1, 1, "job", "default", "null")], incarnation=9)
        assert await pool.ended(1)
        assert (settled, job.ids) == ([1, 2, 0, 3, 4], [4])

    stage.play(scene)


@pytest.mark.parametrize("carry_s", [1.0, -1.0], ids=["the same carrier goes on", "its time is up"])
def test_a_spare_carrier_that_was_canceled_leaves_no_caller_waiting(
    stage: EngineStage, monkeypatch: pytest.MonkeyPatch, carry_s: float
) -> None:
    """Such as a handler that cancels every task that it can find."""
    monkeypatch.setattr(pool_module, "CARRY_S", carry_s)
    job = stage.handler(takes_s=10)

    async def scene() -> None:
        pool = Pool(stage.works, 5, lambda *_: None)

        async def cancels_the_spare(run: Run) -> Settlement:
            assert pool._spare is not None
            pool._spare.cancel()
            return done(run.lease)

        stage.works.add(Work("hostile", "default", cancels_the_spare))
        line = [(1, "hostile"), (2, "job"), (3, "job")]
        pool.start([Lease(number, 1, 1, name, "default", "null") for number, name in line], incarnation=9)
        await stage.clock.advance(1)
        assert job.ids == [2, 3]

    stage.play(scene)
