"""Closing is idempotent, ends within the grace period plus a second, answers who waits, and leaves no timer behind."""

import asyncio
import logging
from typing import Any

import pytest

from everpoll import Outcome, Phase
from everpoll.loops.registry import CANCEL_S
from loops.stage import Stage, timers


async def stubborn() -> None:
    """Suppresses every cancellation for a long while."""
    for _ in range(10):
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            continue


def test_semantics_11_a_run_gets_the_grace_period() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=7)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(31)
        assert (stage.clock.now(), runs.canceled, loop.state.phase, timers()) == (37.0, 0, Phase.CLOSED, 0)

    stage.play(scene)


def test_semantics_11_then_it_is_canceled() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=70)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(31)
            await stage.app.loops.close(grace="3s")
            assert (stage.clock.now(), runs.canceled, loop.state.phase) == (34.0, 1, Phase.CLOSED)

    stage.play(scene)


def test_semantics_11_closing_is_idempotent() -> None:
    stage = Stage()

    async def scene() -> None:
        await stage.app.loops.close()
        loop = stage.add(stage.runs(takes_s=5))
        async with stage.app:
            loop.trigger()
            await stage.clock.advance(1)
            await asyncio.gather(*[stage.app.loops.close() for _ in range(3)])
            await stage.app.loops.close()
            assert (loop.state.phase, timers()) == (Phase.CLOSED, 0)

    stage.play(scene)


def test_semantics_11_closing_one_loop_is_idempotent_and_spares_its_successor() -> None:
    stage = Stage()

    async def scene() -> None:
        first = stage.add(stage.runs())
        async with stage.app:
            await first.close()
            second = stage.add(stage.runs())
            await first.close()
            assert stage.app.loops["prices"] is second
            assert second.state.phase is Phase.WAITING

    stage.play(scene)


def test_semantics_11_a_loop_never_dies_silently(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stubborn)
        async with stage.app:
            await stage.clock.advance(31)
            await stage.app.loops.close(grace=2)
            assert stage.clock.now() == 33 + CANCEL_S
            assert loop.state.phase is Phase.CLOSED

    with caplog.at_level(logging.ERROR):
        stage.play(scene)
    assert caplog.messages == ["loop 'prices' does not end after it was canceled; its run goes on in the background"]


def test_a_caller_that_waits_for_a_trigger_is_answered() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(takes_s=100))
        async with stage.app:
            first = loop.trigger()
            await stage.clock.advance(1)
            second = loop.trigger()
            await stage.app.loops.close(grace=0)
            assert [(await answer).kind for answer in (first, second)] == ["canceled", "canceled"]

    stage.play(scene)


def test_no_follow_up_and_no_trigger_during_the_grace_period() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            loop.trigger()
            await stage.clock.advance(1)
            second = loop.trigger()
            closing = asyncio.ensure_future(stage.app.loops.close())
            await stage.clock.advance(1)
            assert await loop.trigger(force=True) == Outcome("skipped", "paused")
            await closing
            assert await second == Outcome("skipped", "paused")

    stage.play(scene)
    assert runs.at == [0]


def test_closed_before_the_task_began_and_started_again() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            answer = loop.trigger()
            await stage.app.loops.close(grace=0)
            assert (await answer).kind == "canceled"
        async with stage.app:
            assert loop.state.phase is Phase.WAITING
            await stage.clock.advance(31)

    stage.play(scene)
    assert runs.at == [30]


def test_starting_twice_changes_nothing_and_a_closed_app_starts_afresh() -> None:
    stage = Stage()
    runs = stage.runs(False)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(20)
            await stage.app.loops.start()
            await stage.clock.advance(11)
            assert (loop.state.failures, timers()) == (1, 1)
        assert timers() == 0
        async with stage.app:
            assert (loop.state.failures, loop.state.next_due) == (0, 61.0)
            await stage.clock.advance(30)

    stage.play(scene)
    assert runs.at == [30, 61]


def test_a_run_left_behind_is_not_overlapped_after_a_new_start() -> None:
    stage = Stage()
    under_way = most = 0

    async def half_deaf() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        ends_at = stage.clock.now() + 60
        while stage.clock.now() < ends_at:
            try:
                await asyncio.sleep(ends_at - stage.clock.now())
            except asyncio.CancelledError:
                continue
        under_way -= 1

    async def scene() -> None:
        loop = stage.add(half_deaf, 10)
        async with stage.app:
            await stage.clock.advance(11)
            await stage.app.loops.close(grace=0)
            await stage.app.loops.start()
            answer = loop.trigger()
            await stage.clock.advance(30)
            assert (under_way, loop.state.phase) == (1, Phase.RUNNING)
            await stage.clock.advance(29)
            assert (under_way, loop.state.runs) == (1, 2)
            assert (await answer).ok

    stage.play(scene)
    assert most == 1


def test_registered_again_while_it_is_removed() -> None:
    stage = Stage()
    old, new = stage.runs(takes_s=5), stage.runs()

    async def scene() -> None:
        loop = stage.add(old)
        async with stage.app:
            await stage.clock.advance(31)
            removing = asyncio.ensure_future(loop.close(grace="10s"))
            await stage.clock.advance(1)
            stage.add(new, 10)
            await removing
            assert (stage.app.loops["prices"].state.phase, timers()) == (Phase.WAITING, 1)
            await stage.clock.advance(10)
        assert timers() == 0

    stage.play(scene)
    assert new.at == [42]


def test_registered_again_while_the_removed_one_is_being_canceled() -> None:
    stage = Stage()
    new = stage.runs()

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.5)

    async def scene() -> None:
        loop = stage.add(slow_to_end)
        async with stage.app:
            await stage.clock.advance(31)
            removing = asyncio.ensure_future(loop.close())
            await stage.clock.advance(0.1)
            stage.add(new, 10)
            await removing
            assert stage.app.loops["prices"].state.phase is Phase.WAITING
            await stage.clock.advance(11)
        assert timers() == 0

    stage.play(scene)
    assert len(new.at) == 1


def test_a_loop_may_close_itself() -> None:
    stage = Stage()
    runs = 0

    async def scene() -> None:
        async def once() -> None:
            nonlocal runs
            runs += 1
            await stage.app.loops["once"].close()

        stage.add(once, name="once")
        async with stage.app:
            await stage.clock.advance(100)
            assert ("once" in stage.app.loops, timers(), runs) == (False, 0, 1)
            again = stage.add(once, name="once")
            await stage.clock.advance(31)
            assert (again.state.phase, runs) == (Phase.CLOSED, 2)

    stage.play(scene)


def test_a_removed_loop_that_does_not_end_keeps_its_name_until_it_has(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def scene() -> None:
        async def deaf() -> None:
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                await asyncio.sleep(50)

        loop = stage.add(deaf)
        async with stage.app:
            await stage.clock.advance(31)
            await loop.close()
            assert "prices" in stage.app.loops
            await stage.clock.advance(50)
            assert "prices" not in stage.app.loops

    with caplog.at_level(logging.ERROR):
        stage.play(scene)
    assert "its run goes on in the background" in caplog.text


def test_registered_while_the_app_closes() -> None:
    stage = Stage()
    late = stage.runs()

    async def scene() -> None:
        stage.add(stubborn, name="stubborn")
        async with stage.app:
            await stage.clock.advance(31)
            closing = asyncio.ensure_future(stage.app.loops.close(grace=0))
            await stage.clock.advance(0.5)
            loop = stage.add(late, 10, "late")
            await closing
            assert (loop.state.phase, timers()) == (Phase.CLOSED, 0)
            await stage.clock.advance(100)

    stage.play(scene)
    assert late.at == []


def test_two_event_loops_one_after_the_other() -> None:
    stage = Stage()
    runs = stage.runs()
    loop = stage.add(runs)

    async def scene() -> None:
        async with stage.app:
            await stage.clock.advance(31)

    stage.play(scene)
    stage.play(scene)
    assert (runs.at, loop.state.runs) == ([30, 61], 2)


def test_an_event_loop_that_ended_without_closing_is_forgotten() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=50)
    loop = stage.add(runs)

    async def left() -> None:
        await stage.app.loops.start()
        await stage.clock.advance(31)

    stage.play(left)
    assert runs.canceled == 1

    async def scene() -> None:
        async with stage.app:
            assert loop.state.phase == "waiting"
            await stage.clock.advance(31)
            assert loop.state.phase == "running"

    stage.play(scene)
    assert runs.at == [30, 61]


def test_a_second_event_loop_at_the_same_time_is_refused() -> None:
    stage = Stage()
    stage.add(stage.runs())

    async def other() -> None:
        with pytest.raises(Exception, match="another event loop"):
            await stage.app.loops.start()

    async def scene() -> None:
        async with stage.app:
            await asyncio.to_thread(lambda: asyncio.run(other()))

    stage.play(scene)


def test_get_answers_like_any_mapping() -> None:
    stage = Stage()
    loop = stage.add(stage.runs())
    marker: Any = object()
    assert (stage.app.loops.get("prices"), stage.app.loops.get("x"), stage.app.loops.get("x", marker)) == (
        loop,
        None,
        marker,
    )
