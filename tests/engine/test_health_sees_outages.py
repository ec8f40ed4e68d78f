"""`health()` of a worker that rests tells of a database that is away: heartbeats count, and so does being fenced."""

import pytest

from engine.engine_stage import EngineStage
from everpoll.engine.meter import UNHEALTHY_ERRORS, Meter


def test_an_idle_worker_without_its_database_is_unhealthy_and_says_why(stage: EngineStage) -> None:
    stage.handler()

    async def scene() -> None:
        async with stage.working(lease_s=30.0) as worker:
            await stage.clock.advance(60)
            health = worker.health()
            assert health.healthy
            assert health.heartbeat_age_s is not None
            assert health.heartbeat_age_s <= 10
            assert (health.consecutive_errors, health.last_error) == (0, None)
            stage.store.is_down = True
            # The next beat comes within a third of the lease, and is repeated every second.
            await stage.clock.advance(10 + UNHEALTHY_ERRORS)
            health = worker.health()
            assert not health.healthy
            assert health.consecutive_errors >= UNHEALTHY_ERRORS
            assert health.last_error is not None
            assert "StoreUnavailable" in health.last_error
            await stage.clock.advance(20)
            health = worker.health()
            assert health.is_fenced
            assert health.heartbeat_age_s is not None
            assert health.heartbeat_age_s >= 20
            stage.store.is_down = False
            await stage.clock.advance(30)
            health = worker.health()
            assert health.healthy
            assert not health.is_fenced
            assert health.consecutive_errors == 0

    stage.play(scene)


def test_a_heartbeat_that_fails_alone_is_not_excused_by_looks_that_succeed(stage: EngineStage) -> None:
    """As where the server refuses the heartbeat its connection: looks go on until the worker is fenced."""
    stage.handler()

    async def scene() -> None:
        async with stage.working(lease_s=30.0) as worker:
            await stage.clock.settle()
            stage.store.fail("beat", 1_000)
            await stage.clock.advance(8)
            before = len(stage.store.looks)
            stage.store.wake()
            await stage.clock.advance(8)
            assert len(stage.store.looks) > before, "looks succeed"
            assert not worker.health().healthy
            stage.store.errors["beat"].clear()
            await stage.clock.advance(5)
            assert worker.health().healthy

    stage.play(scene)


def test_a_worker_that_was_declared_dead_is_healthy_once_it_has_signed_on_anew(stage: EngineStage) -> None:
    stage.handler()

    async def scene() -> None:
        async with stage.working(lease_s=30.0) as worker:
            await stage.clock.advance(5)
            await stage.bury(worker.incarnation)
            await stage.clock.advance(60)
            assert worker.health().healthy

    stage.play(scene)


@pytest.mark.parametrize("succeeds", ["polled", "beaten"])
def test_looks_and_heartbeats_are_counted_apart(succeeds: str) -> None:
    meter = Meter()
    for _ in range(3):
        meter.failed("look")
        meter.beat_failed("beat")
    if succeeds == "polled":
        meter.polled(0, 0, 0)
    else:
        meter.beat_answered()
    assert meter.consecutive_errors == 3
    assert (meter.errors, meter.last_error) == (6, "beat")
