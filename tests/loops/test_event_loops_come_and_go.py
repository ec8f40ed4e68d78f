"""An app outlives its event loops: what they leave behind is not overlapped, and everything can still be called."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

import pytest

from everpoll import Loop, NotRunning, Phase
from everpoll.loops.registry import CANCEL_S
from loops.stage import Blocking, Stage, in_turn, timers, turns


def leave(stage: Stage, blocking: Blocking, loop: Loop) -> None:
    """One event loop, from start to close, that leaves a thread behind."""

    async def scene() -> None:
        await stage.app.loops.start()
        loop.trigger()
        await turns()
        blocking.wait_until_entered()
        closing = asyncio.ensure_future(stage.app.loops.close(grace=0))
        await turns()
        stage.clock.jump(CANCEL_S)
        await closing

    stage.play(scene)


def close_with_everything_on_it(event_loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(event_loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # It is meant.
    event_loop.close()


def abandon(stage: Stage, act: Callable[[], object] = lambda: None) -> None:
    """One event loop begins a run, and a caller waits for it; it is closed with all that, nothing canceled."""
    event_loop = stage.clock.new_event_loop()

    async def wait_for(loop: Loop) -> None:
        await loop.trigger()

    async def scene() -> None:
        await stage.app.loops.start()
        waiting = [asyncio.ensure_future(wait_for(loop)) for loop in stage.app.loops.values()]
        await turns()
        act()
        assert len(waiting) == len(stage.app.loops)

    event_loop.run_until_complete(scene())
    close_with_everything_on_it(event_loop)


def test_a_thread_of_one_event_loop_is_not_overlapped_on_the_next() -> None:
    stage, blocking = Stage(), Blocking()
    loop = stage.add(blocking, 1)
    leave(stage, blocking, loop)
    assert (blocking.under_way, loop.state.phase) == (1, Phase.CLOSED)

    async def scene() -> None:
        async with stage.app:
            answer = loop.trigger()
            await turns()
            stage.clock.jump(10)
            await turns()
            assert (loop.state.runs, loop.state.phase, timers()) == (1, Phase.RUNNING, 0)
            blocking.let_go.set()
            assert (await answer).ok
            assert (loop.state.runs, loop.state.phase) == (2, Phase.WAITING)

    stage.play(scene)
    assert blocking.most_at_once == 1


def test_a_thread_that_ended_between_two_event_loops_holds_nothing_up() -> None:
    stage, blocking = Stage(), Blocking()
    loop = stage.add(blocking, 10)
    leave(stage, blocking, loop)
    assert loop._run is not None
    assert loop._run.thread is not None
    over = Blocking()
    loop._run.thread.when_over(over.entered.release)
    blocking.let_go.set()
    over.wait_until_entered()

    async def scene() -> None:
        async with stage.app:
            assert (loop.state.phase, timers()) == (Phase.WAITING, 1)
            await stage.clock.advance(10)
            assert loop.state.runs == 2

    stage.play(scene)
    assert blocking.most_at_once == 1


def test_a_thread_of_an_event_loop_that_was_never_closed_properly_is_waited_for() -> None:
    stage, blocking = Stage(), Blocking()
    loop = stage.add(blocking, 10)
    abandon(stage, blocking.wait_until_entered)

    async def scene() -> None:
        async with stage.app:
            answer = loop.trigger()
            await turns()
            assert (loop.state.runs, loop.state.phase) == (1, Phase.RUNNING)
            blocking.let_go.set()
            assert (await answer).ok
            assert loop.state.phase is Phase.WAITING

    stage.play(scene)
    assert blocking.most_at_once == 1


def test_a_removed_loop_whose_thread_outlived_the_event_loop_frees_its_name_at_the_next_start() -> None:
    stage, blocking = Stage(), Blocking()
    loop = stage.add(blocking, 10)

    async def removed() -> None:
        await stage.app.loops.start()
        loop.trigger()
        await turns()
        blocking.wait_until_entered()
        for ending in (loop.close(), stage.app.loops.close(grace=0)):
            ended = asyncio.ensure_future(ending)
            await turns()
            stage.clock.jump(CANCEL_S)
            await ended

    stage.play(removed)
    assert "prices" in stage.app.loops

    async def scene() -> None:
        async with stage.app:
            await turns()
            assert (loop.state.phase, "prices" in stage.app.loops) == (Phase.CLOSED, True)
            over = asyncio.Event()
            assert loop._run is not None
            assert loop._run.thread is not None
            loop._run.thread.when_over(partial(stage.app.loops._soon, over.set))
            blocking.let_go.set()
            await over.wait()
            await turns()
            assert ("prices" in stage.app.loops, timers()) == (False, 0)

    stage.play(scene)
    assert blocking.most_at_once == 1


ACTS: dict[str, Callable[[Stage, Loop], object]] = {
    "replace": lambda stage, _: stage.add(stage.runs(), 10),
    "register": lambda stage, _: stage.add(stage.runs(), 10, "another"),
    "pause": lambda _, loop: loop.pause(),
    "resume": lambda _, loop: in_turn(loop.pause, loop.resume),
    "pause all": lambda stage, _: stage.app.loops.pause("hidden"),
    "resume all": lambda stage, _: in_turn(stage.app.loops.pause, stage.app.loops.resume),
    "reset": lambda _, loop: loop.reset(),
    "push": lambda _, loop: in_turn(loop.push_connected, loop.push_lost),
    "show": lambda _, loop: (loop.next_due_at, loop.last_ok_at, repr(loop)),
    "close": lambda stage, _: asyncio.run(stage.app.loops.close()),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("takes_s", [0.0, 100.0])
def test_after_an_event_loop_that_was_not_closed_properly_everything_still_works(act: str, takes_s: float) -> None:
    stage = Stage()
    runs = stage.runs(takes_s=takes_s)
    loop = stage.add(runs, 10)
    abandon(stage)
    ACTS[act](stage, loop)
    with pytest.raises(NotRunning, match="the app is not running"):
        loop.trigger()
    loop.resume()
    stage.app.loops.resume("hidden")
    began = len(runs.at)

    async def scene() -> None:
        async with stage.app:
            assert (loop.state.phase, timers(), loop.state.in_flight) == (Phase.WAITING, 1, 0)
            due = loop.state.next_due
            assert due == stage.clock.now() + 10
            await stage.clock.advance(10)
            assert loop.state.last_started == due

    stage.play(scene)
    assert len(runs.at) == began + (act != "replace")


@pytest.mark.parametrize("takes_s", [0.0, 100.0])
def test_removing_after_an_event_loop_that_was_not_closed_properly(takes_s: float) -> None:
    stage = Stage()
    loop = stage.add(stage.runs(takes_s=takes_s), 10)
    abandon(stage)
    stage.clock.run(loop.close(grace="1h"))
    assert (loop.state.phase, "prices" in stage.app.loops, stage.clock.now()) == (Phase.CLOSED, False, 0)


def test_a_removed_loop_that_was_left_behind_on_an_event_loop_that_is_gone_frees_its_name_at_the_next_start() -> None:
    stage = Stage()

    async def deaf() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    loop = stage.add(deaf, 10, first=0)
    event_loop = stage.clock.new_event_loop()

    async def removed() -> None:
        await stage.app.loops.start()
        await stage.clock.advance(1)
        await loop.close()

    event_loop.run_until_complete(removed())
    close_with_everything_on_it(event_loop)
    assert "prices" in stage.app.loops

    async def scene() -> None:
        async with stage.app:
            assert ("prices" in stage.app.loops, timers()) == (False, 0)

    stage.play(scene)


def test_a_new_loop_may_take_the_name_on_the_next_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    new = stage.runs()
    loop = stage.add(stage.runs(takes_s=100), 10)
    abandon(stage)
    asyncio.run(loop.close())
    stage.add(new, 10)

    async def scene() -> None:
        async with stage.app:
            await stage.clock.advance(10)

    with caplog.at_level(logging.ERROR, "everpoll"):
        stage.play(scene)
    assert len(new.at) == 1
    assert [record for record in caplog.records if record.name.startswith("everpoll")] == []
