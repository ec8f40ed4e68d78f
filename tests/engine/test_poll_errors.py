"""Errors while looking never stop the poller: they are tried again, logged, and seen by its health."""

import asyncio
import logging

import pytest

from engine.engine_stage import GONE, EngineStage
from everpoll.engine.poller import Poller
from everpoll.errors import LeaseLost

ENGINE = "everpoll.engine"


def test_a_look_is_tried_at_0_2_and_6_s_and_then_the_poller_goes_on(stage: EngineStage) -> None:
    job = stage.handler()
    stage.store.fail("lease", 4)

    async def scene() -> None:
        await stage.put()
        async with stage.working():
            await stage.clock.advance(30)
        # Three tries, the base interval, and the second look succeeds at its second try.
        assert stage.store.looked_at[:5] == [0, 2, 6, 11, 13]
        assert job.at == [13]

    stage.play(scene)


def test_a_failed_look_is_no_empty_look_and_leaves_the_sequence_where_it_is(stage: EngineStage) -> None:
    store = stage.without_push()
    stage.handler()

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(12)  # looked at 0, 5 and 10; the next one is due at 17.5
            store.fail("lease", 3)
            await stage.clock.advance(40)
        assert store.looked_at == [0, 5, 10, 17.5, 19.5, 23.5, 28.5, 39.75]

    stage.play(scene)


@pytest.mark.parametrize("error", [GONE, ValueError("not transient at all"), RuntimeError("bug")])
def test_no_error_stops_the_poller_and_each_is_reported(
    stage: EngineStage, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    job = stage.handler()
    stage.store.fail("lease", 20, error)

    async def scene() -> None:
        await stage.put()
        async with stage.working():
            await stage.clock.advance(120)
        assert len(job.at) == 1

    with caplog.at_level(logging.WARNING, ENGINE):
        stage.play(scene)
    answer = [one for one in caplog.records if "failed" in one.message]
    assert len(answer) == 20
    assert str(error) in answer[0].message
    # Transient ones are expected: a warning. Others are reported with where they came from.
    assert [one.levelno for one in answer] == [logging.WARNING if error is GONE else logging.ERROR] * 20
    assert all(bool(one.exc_info) is (error is not GONE) for one in answer)


def test_health_flips_at_five_errors_in_a_row_and_recovers(stage: EngineStage) -> None:
    stage.handler()
    stage.store.fail("lease", 5)

    async def scene() -> None:
        async with stage.working() as worker:
            await stage.clock.advance(12)  # tries at 0, 2, 6 and 11
            assert (worker.health().healthy, worker.health().consecutive_errors) == (True, 4)
            await stage.clock.advance(1)
            assert (worker.health().healthy, worker.health().consecutive_errors) == (False, 5)
            assert worker.health().last_error == "StoreUnavailable: connection refused"
            await stage.clock.advance(4)
            assert (worker.health().healthy, worker.health().consecutive_errors) == (True, 0)

    stage.play(scene)


def test_a_poller_that_rests_is_healthy_and_says_for_how_long(stage: EngineStage) -> None:
    stage.without_push()
    stage.handler()

    async def scene() -> None:
        async with stage.working() as worker:
            await stage.clock.advance(110)
            health = worker.health()
            assert (health.healthy, health.polling, health.waiting_s) == (True, True, 30)

    stage.play(scene)


def test_a_full_pool_is_healthy(stage: EngineStage) -> None:
    stage.handler(takes_s=3600)

    async def scene() -> None:
        await stage.put(5)
        async with stage.working(slots=2) as worker:
            await stage.clock.advance(1800)
            health = worker.health()
            assert (health.healthy, health.running, health.slots, health.waiting_s) == (True, 2, 2, None)

    stage.play(scene)


def test_a_dead_poller_is_not_healthy_and_says_so(
    stage: EngineStage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.handler()

    async def dies(_poller: Poller) -> None:
        raise MemoryError("no room for anything")

    monkeypatch.setattr(Poller, "run", dies)

    async def scene() -> None:
        async with stage.working() as worker:
            await stage.clock.advance(1)
            assert (worker.health().healthy, worker.health().polling) == (False, False)

    stage.play(scene)
    assert [one.levelno for one in caplog.records if "poller died" in one.message] == [logging.CRITICAL]


def test_before_start_and_after_stop_nothing_polls(stage: EngineStage) -> None:
    stage.handler()

    async def scene() -> None:
        worker = stage.worker()
        assert not worker.health().healthy
        await worker.start()
        assert worker.health().healthy
        await worker.stop()
        assert not worker.health().healthy

    stage.play(scene)


def test_every_look_is_logged_at_debug_level_and_every_lease_at_info(
    stage: EngineStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.handler()

    async def scene() -> None:
        await stage.put(7)
        async with stage.working():
            await stage.clock.advance(40)

    with caplog.at_level(logging.DEBUG, ENGINE):
        stage.play(scene)
    looks = [one for one in caplog.records if one.message.startswith("polled default")]
    assert len(looks) == len(stage.store.looks)
    assert {one.levelno for one in looks} == {logging.DEBUG}
    [lease] = [one for one in caplog.records if one.message.startswith("leased")]
    assert lease.levelno == logging.INFO
    assert lease.message == "leased 7 tasks: job#1, job#2, job#3, job#4, job#5, …"


def test_a_wake_up_cuts_the_wait_between_two_tries_short_once(stage: EngineStage) -> None:
    stage.handler()
    stage.store.fail("lease", 3)

    async def scene() -> None:
        async with stage.working():
            await stage.clock.advance(1)
            stage.store.wake()
            await stage.clock.advance(5)
        # The second try comes with the wake-up; the third keeps its distance, and so does the next look.
        assert stage.store.looked_at == [0, 1, 5]

    stage.play(scene)


def test_signing_on_anew_may_fail_in_any_way_and_the_poller_goes_on(
    stage: EngineStage, caplog: pytest.LogCaptureFixture
) -> None:
    job = stage.handler()

    async def scene() -> None:
        async with stage.working() as worker:
            await stage.clock.settle()
            first = worker.incarnation
            await stage.bury(first)
            stage.store.fail("sign_on", 1, ValueError("a bug of the driver"))
            await stage.put()
            stage.store.wake()
            await stage.clock.advance(5)
            assert job.at == [2]
            assert worker.incarnation != first

    stage.play(scene)
    assert any("a bug of the driver" in str(one.exc_info) for one in caplog.records)


def test_lease_lost_is_no_error_of_the_poller(stage: EngineStage) -> None:
    stage.handler()
    stage.store.fail("lease", 1, LeaseLost("given up"))

    async def scene() -> None:
        async with stage.working() as worker:
            await asyncio.sleep(1)
            assert worker.health().consecutive_errors == 0
            assert stage.store.calls.count("sign_on") == 2

    stage.play(scene)
