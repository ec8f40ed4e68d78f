"""Plain loops that hang are counted, shown and replaced by other threads; only when those hang too is a run refused."""

import asyncio
import logging

import pytest

from everpoll import Breaker, Outcome, Phase
from everpoll.engine.threads import LONG_S
from everpoll.loops.registry import CANCEL_S
from loops.stage import Blocking, Stage, timers, turns

THREADS = 32


async def hang(stage: Stage, blocking: Blocking, count: int, first: int = 0, limit: str | None = "5s") -> None:
    """Let this many loops hang in a thread each, past their timeout."""
    for number in range(first, first + count):
        stage.add(blocking, 1000, f"hung {number}", timeout=limit).trigger()
    await turns()
    for _ in range(count):
        blocking.wait_until_entered()
    stage.clock.jump(5)
    await turns()


def test_another_plain_loop_runs_while_as_many_hang_as_there_are_threads() -> None:
    stage, blocking = Stage(), Blocking()

    async def scene() -> None:
        async with stage.app:
            await hang(stage, blocking, THREADS)
            assert (await stage.add(lambda: None, name="other").trigger()).ok
            assert [stage.app.loops[f"hung {number}"].state.overran for number in range(THREADS)] == [True] * THREADS
            blocking.let_go.set()

    stage.play(scene)


def test_a_loop_whose_thread_outlives_its_timeout_has_failed_at_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    stage, blocking = Stage(), Blocking()

    async def scene() -> None:
        loop = stage.add(blocking, 60, timeout="5s")
        async with stage.app:
            answer = loop.trigger()
            await turns()
            blocking.wait_until_entered()
            stage.clock.jump(5)
            assert await answer == Outcome("failed", "timeout")
            state = loop.state
            assert (state.phase, state.overran, state.failures, state.last_error) == (Phase.RUNNING, True, 1, "timeout")
            assert (state.next_due, timers()) == (None, 0)
            stage.clock.jump(100)
            blocking.let_go.set()
            while loop.state.in_flight:
                await turns()
            state = loop.state
            assert (state.phase, state.overran, state.failures, state.next_due) == (Phase.WAITING, False, 1, 225.0)

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    assert "loop 'prices' failed: timeout (failures: 1, next run once its thread has returned)" in caplog.messages


def test_a_breaker_opens_at_the_timeout_and_its_probe_waits_for_the_thread() -> None:
    stage, blocking = Stage(), Blocking()

    async def scene() -> None:
        loop = stage.add(blocking, 60, timeout="5s", breaker=Breaker(1, "10s"))
        async with stage.app:
            answer = loop.trigger()
            await turns()
            blocking.wait_until_entered()
            stage.clock.jump(5)
            await answer
            assert (loop.state.phase, loop.state.breaker.opened_at) == (Phase.RUNNING, 5.0)
            stage.clock.jump(2)
            blocking.let_go.set()
            while loop.state.in_flight:
                await turns()
            assert (loop.state.phase, loop.state.next_due) == (Phase.OPEN, 15.0)

    stage.play(scene)


def test_replaced_while_its_thread_hangs_it_says_so_until_the_thread_returns() -> None:
    stage, blocking, runs = Stage(), Blocking(), Stage().runs()

    async def scene() -> None:
        loop = stage.add(blocking, 60, timeout="5s")
        async with stage.app:
            answer = loop.trigger()
            await turns()
            blocking.wait_until_entered()
            stage.clock.jump(5)
            await answer
            stage.add(runs, 60)
            assert (loop.state.phase, loop.state.overran, loop.state.failures) == (Phase.RUNNING, True, 0)
            blocking.let_go.set()
            while loop.state.in_flight:
                await turns()
            assert (loop.state.phase, loop.state.overran, loop.state.failures) == (Phase.WAITING, False, 0)

    stage.play(scene)


def test_health_counts_the_threads_that_are_left_behind() -> None:
    stage, blocking = Stage(), Blocking()

    async def scene() -> None:
        async with stage.app:
            await hang(stage, blocking, 3)
            health = stage.app.health()
            assert (health.threads_left_behind, health.healthy) == (3, True)
            blocking.let_go.set()
            while stage.app.health().threads_left_behind:
                await turns()

    stage.play(scene)


def test_when_the_replacements_hang_too_runs_are_refused_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    stage, blocking = Stage(), Blocking()

    async def scene() -> None:
        async with stage.app:
            await hang(stage, blocking, THREADS)
            assert stage.app.health().healthy
            await hang(stage, blocking, THREADS - 1, first=THREADS)
            other = stage.add(lambda: None, name="other")
            assert (await other.trigger()).ok
            assert not stage.app.health().healthy
            await hang(stage, blocking, 1, first=2 * THREADS)
            refused = await other.trigger()
            assert (refused.kind, other.state.failures) == ("failed", 1)
            assert refused.reason is not None
            assert refused.reason.startswith("NoThreadLeft: everpoll-loop: all 64 threads run functions that are past")
            blocking.let_go.set()
            while stage.app.health().threads_left_behind:
                await turns()
            assert (await other.trigger()).ok
            assert stage.app.health().healthy

    with caplog.at_level(logging.ERROR):
        stage.play(scene)
    (loud,) = [message for message in caplog.messages if "no further one is replaced" in message]
    assert loud.startswith("everpoll-loop: 33 threads run functions that are past their timeout")
    assert loud.endswith("plain functions are refused when all 64 are taken: restart this process")


def test_threads_of_functions_without_a_timeout_are_replaced_once_they_take_long() -> None:
    stage, blocking = Stage(), Blocking()

    async def scene() -> None:
        async with stage.app:
            await hang(stage, blocking, THREADS, limit=None)
            answer = stage.add(lambda: None, name="other").trigger()
            await turns()
            assert not answer.done()
            stage.clock.jump(LONG_S)
            assert (await answer).ok
            assert stage.app.loops["hung 0"].state.failures == 0
            assert stage.app.health().threads_left_behind == 0
            blocking.let_go.set()

    stage.play(scene)


def test_a_loop_that_is_removed_while_it_hangs_gives_its_place_to_another() -> None:
    stage, blocking = Stage(), Blocking()

    async def scene() -> None:
        async with stage.app:
            await hang(stage, blocking, THREADS, limit=None)
            removing = asyncio.ensure_future(stage.app.loops.remove("hung 0"))
            await turns()
            # Time stands still while threads run: how long the removal waits for the thread is up to the test.
            stage.clock.jump(CANCEL_S)
            await removing
            assert (await stage.add(lambda: None, name="other").trigger()).ok
            assert blocking.under_way == THREADS, "all of them still hang"
            blocking.let_go.set()

    stage.play(scene)
