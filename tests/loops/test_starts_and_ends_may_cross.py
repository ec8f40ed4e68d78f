"""Starting, closing and removing may cross each other, or be called from inside a run: each still does what it says."""

import asyncio
import contextlib

import pytest

from everpoll import Phase
from loops.stage import Stage, timers


def test_starting_during_a_close_waits_for_it() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs, first=0)
        await stage.app.loops.start()
        await stage.clock.advance(1)
        closing = asyncio.ensure_future(stage.app.loops.close(grace="10s"))
        await stage.clock.advance(1)
        await asyncio.gather(stage.app.loops.start(), stage.app.loops.start())
        assert (closing.done(), stage.clock.now(), loop.state.pauses) == (True, 5, frozenset())
        await stage.clock.advance(1)
        assert loop.state.phase is Phase.RUNNING
        await stage.app.loops.close()

    stage.play(scene)
    assert (runs.at, runs.canceled) == ([0, 5], 0)


def test_a_slower_close_does_nothing_to_what_was_started_since() -> None:
    stage = Stage()
    runs = stage.runs()

    async def deaf() -> None:
        ends_at = stage.clock.now() + 60
        while stage.clock.now() < ends_at:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(ends_at - stage.clock.now())

    async def scene() -> None:
        stage.add(deaf, name="deaf", first=0)
        loop = stage.add(runs, 10)
        await stage.app.loops.start()
        await stage.clock.advance(1)
        slower = asyncio.ensure_future(stage.app.loops.close(grace="20s"))
        await stage.clock.advance(1)
        await stage.app.loops.close(grace=0)
        await stage.app.loops.start()
        await stage.clock.advance(40)
        assert (slower.done(), loop.state.phase, loop.state.pauses) == (True, Phase.WAITING, frozenset())
        await stage.clock.advance(30)
        await stage.app.loops.close()

    stage.play(scene)
    assert runs.at == [13, 23, 33, 43, 53, 63, 73]


def test_a_removed_loop_that_was_left_behind_does_not_come_back_at_a_restart() -> None:
    stage = Stage()
    runs = 0

    async def deaf() -> None:
        nonlocal runs
        runs += 1
        ends_at = stage.clock.now() + 60
        while stage.clock.now() < ends_at:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(ends_at - stage.clock.now())

    async def scene() -> None:
        loop = stage.add(deaf, 10, first=0)
        await stage.app.loops.start()
        await stage.clock.advance(1)
        await loop.close()
        await stage.app.loops.close(grace=0)
        await stage.app.loops.start()
        assert (loop.state.phase, "prices" in stage.app.loops) == (Phase.CLOSED, True)
        await stage.clock.advance(100)
        assert ("prices" in stage.app.loops, timers()) == (False, 0)
        await stage.app.loops.close()

    stage.play(scene)
    assert runs == 1


def test_registered_again_while_it_is_removed_it_does_not_run_while_the_app_closes() -> None:
    stage = Stage()
    new = stage.runs()

    async def scene() -> None:
        loop = stage.add(stage.runs(takes_s=5), first=0)
        stage.add(stage.runs(takes_s=30), name="long", first=0)
        await stage.app.loops.start()
        await stage.clock.advance(1)
        removing = asyncio.ensure_future(loop.close(grace="100s"))
        await stage.clock.advance(0)
        stage.add(new, 1, first=0)
        closing = asyncio.ensure_future(stage.app.loops.close(grace="40s"))
        await removing
        assert stage.clock.now() == 5
        await closing
        assert stage.clock.now() == 30

    stage.play(scene)
    assert new.at == []


def test_a_run_that_closes_its_app_does_not_wait_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    took: list[float] = []

    async def scene() -> None:
        async def last() -> None:
            began_at = stage.clock.now()
            try:
                await stage.app.loops.close()
            finally:
                took.append(stage.clock.now() - began_at)

        loop = stage.add(last, first=0)
        await stage.app.loops.start()
        await stage.clock.advance(100)
        assert (loop.state.phase, loop.state.in_flight, timers()) == (Phase.CLOSED, 0, 0)

    stage.play(scene)
    assert took == [0]
    assert "does not end" not in caplog.text


def test_a_run_that_closes_its_app_gives_the_others_their_grace_period() -> None:
    stage = Stage()
    other = stage.runs(takes_s=4)

    async def scene() -> None:
        async def last() -> None:
            await stage.app.loops.close(grace="10s")

        stage.add(other, name="other", first=0)
        stage.add(last, first=0)
        await stage.app.loops.start()
        await stage.clock.advance(3)
        assert other.under_way == 1
        await stage.clock.advance(1)
        assert (other.under_way, other.canceled, timers()) == (0, 0, 0)

    stage.play(scene)


def test_a_loop_that_closes_itself_does_not_wait_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    took: list[float] = []

    async def scene() -> None:
        async def once() -> None:
            began_at = stage.clock.now()
            try:
                await stage.app.loops["prices"].close(grace="5s")
            finally:
                took.append(stage.clock.now() - began_at)

        stage.add(once, first=0)
        async with stage.app:
            await stage.clock.advance(1)
            assert "prices" not in stage.app.loops

    stage.play(scene)
    assert took == [0]
    assert "does not end" not in caplog.text
