"""Cancellation is never counted, never swallowed, and a loop outlives it: asleep, running or in a hook."""

import asyncio
import gc
import logging
from typing import Any

import pytest

from everpoll import Outcome, Phase
from loops.stage import Stage, timers


def task_of(loop: Any) -> "asyncio.Task[None]":
    task: asyncio.Task[None] = loop._run.task
    return task


def test_edge_cancel_during_sleep() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        stage.add(runs)
        running = asyncio.ensure_future(stage.app.run())
        await stage.clock.advance(10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert timers() == 0
        assert stage.clock.now() == 10

    stage.play(scene)
    assert runs.at == []


def test_edge_cancel_during_run() -> None:
    stage = Stage()
    runs = stage.runs(False, takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await loop.trigger()
            answer = loop.trigger()
            await stage.clock.advance(1)
            task = task_of(loop)
            task.cancel()
            assert (await answer).kind == "canceled"
            await asyncio.sleep(0)
            assert task.cancelled()
            assert (loop.state.failures, loop.state.last_ok, loop.state.phase) == (1, None, Phase.WAITING)
            assert (loop.state.next_due, timers()) == (66.0, 1)
            await stage.clock.advance(61)
            assert loop.state.phase is Phase.RUNNING

    stage.play(scene)


def test_edge_cancel_during_run_before_its_first_step() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            answer = loop.trigger()
            task_of(loop).cancel()
            assert (await answer).kind == "canceled"
            assert (loop.state.phase, loop.state.next_due, timers()) == (Phase.WAITING, 30.0, 1)
            await stage.clock.advance(31)

    stage.play(scene)
    assert runs.at == [30]


def test_edge_cancel_during_hook_keeps_the_outcome() -> None:
    stage = Stage()

    async def slow_hook(_outcome: Outcome) -> None:
        await asyncio.sleep(10)

    async def scene() -> None:
        loop = stage.add(stage.runs(False), on_outcome=slow_hook)
        async with stage.app:
            answer = loop.trigger()
            await stage.clock.advance(1)
            task = task_of(loop)
            task.cancel()
            assert (await answer).kind == "failed"
            await asyncio.sleep(0)
            assert (loop.state.failures, task.cancelled(), timers()) == (1, True, 1)

    stage.play(scene)


def test_edge_a_hook_that_raises_leaves_the_outcome_alone(caplog: pytest.LogCaptureFixture) -> None:
    def plain(outcome: Outcome) -> None:
        raise ValueError(f"plain {outcome.kind}")

    async def slow(outcome: Outcome) -> None:
        await asyncio.sleep(1)
        raise ValueError(f"slow {outcome.kind}")

    for hook in (plain, slow):
        stage = Stage()

        async def scene(stage: Stage = stage, hook: Any = hook) -> None:
            loop = stage.add(stage.runs(None, False), on_outcome=hook)
            async with stage.app:
                assert (await loop.trigger()).ok
                assert loop.state.failures == 0
                assert not (await loop.trigger()).ok
                assert loop.state.failures == 1

        stage.play(scene)
    reported = [record.exc_text or str(record.exc_info) for record in caplog.records if "hook" in record.message]
    assert len(reported) == 4
    assert all("'prices'" in record.message for record in caplog.records if "hook" in record.message)


def test_the_hook_is_part_of_the_run() -> None:
    stage = Stage()
    reported: list[Outcome] = []

    async def slow_hook(outcome: Outcome) -> None:
        await asyncio.sleep(10)
        reported.append(outcome)

    async def scene() -> None:
        loop = stage.add(stage.runs(), on_outcome=slow_hook)
        async with stage.app:
            await stage.clock.advance(35)
            assert loop.state.phase is Phase.RUNNING
            await stage.clock.advance(5)
            assert loop.state.next_due == 70.0

    stage.play(scene)
    assert reported == [Outcome("ok")]


def test_edge_a_function_that_suppresses_cancellation_at_its_timeout() -> None:
    stage = Stage()

    async def scene() -> None:
        async def deaf() -> bool:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(3)
            return True

        loop = stage.add(deaf, timeout="5s")
        async with stage.app:
            await stage.clock.advance(36)
            assert (loop.state.phase, timers()) == (Phase.RUNNING, 0)
            await stage.clock.advance(3)
            assert (loop.state.failures, loop.state.last_error, loop.state.next_due) == (1, "timeout", 98.0)

    stage.play(scene)


def test_edge_a_function_that_suppresses_cancellation_at_the_close() -> None:
    stage = Stage()

    async def scene() -> None:
        async def deaf() -> bool:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(0.5)
            return False

        loop = stage.add(deaf)
        async with stage.app:
            await stage.clock.advance(31)
            await stage.app.loops.close(grace=0)
            assert stage.clock.now() == 31.5
            assert (loop.state.phase, loop.state.failures, loop.state.in_flight) == (Phase.CLOSED, 0, 0)

    stage.play(scene)


def test_a_function_that_raises_cancellation_by_itself_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(asyncio.CancelledError(), None), timeout="10s")
        async with stage.app:
            assert (await loop.trigger()).kind == "canceled"
            assert (loop.state.failures, loop.state.next_due) == (0, 30.0)
            await stage.clock.advance(31)
            assert loop.state.last_ok == 30.0

    stage.play(scene)
    assert [message for message in caplog.messages if "raised CancelledError by itself" in message]


def test_a_base_exception_is_not_swallowed_and_the_loop_goes_on() -> None:
    class Odd(BaseException):
        pass

    stage = Stage()
    seen: list[Any] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
        loop = stage.add(stage.runs(Odd(), None))
        async with stage.app:
            assert (await loop.trigger()).kind == "canceled"
            assert loop.state.failures == 0
            await stage.clock.advance(31)
            assert loop.state.last_ok == 30.0
            gc.collect()

    stage.play(scene)
    assert [type(error) for error in seen] == [Odd]


def test_system_exit_ends_the_program() -> None:
    stage = Stage()

    async def scene() -> None:
        stage.add(stage.runs(SystemExit(3)))
        async with stage.app:
            await stage.clock.advance(31)

    with pytest.raises(SystemExit):
        stage.play(scene)


def test_canceling_the_close_still_ends_everything(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    runs = stage.runs(takes_s=100)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(31)
            closing = asyncio.ensure_future(stage.app.loops.close(grace="1m"))
            await stage.clock.advance(1)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert (loop.state.phase, runs.canceled, timers()) == (Phase.CLOSED, 1, 0)
            assert loop.state.pauses == frozenset()

    with caplog.at_level(logging.WARNING):
        stage.play(scene)


def test_canceling_the_removal_still_frees_the_name() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(takes_s=100))
        async with stage.app:
            await stage.clock.advance(31)
            removing = asyncio.ensure_future(loop.close(grace="1m"))
            await stage.clock.advance(1)
            removing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await removing
            assert ("prices" in stage.app.loops, timers()) == (False, 0)

    stage.play(scene)


def test_an_odd_exception_of_a_plain_condition_passes_through_and_the_loop_goes_on() -> None:
    class Odd(BaseException):
        pass

    stage = Stage()
    runs, other = stage.runs(), stage.runs()
    raising: list[BaseException] = [Odd("what?")]
    seen: list[Any] = []

    def when() -> bool:
        if raising:
            raise raising.pop()
        return True

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
        loop = stage.add(runs, when=when)
        stage.add(other, name="other")
        async with stage.app:
            await stage.clock.advance(30)
            assert (loop.state.failures, loop.state.last_error) == (1, "condition: Odd: what?")
            assert (loop.state.phase, loop.state.next_due, timers()) == (Phase.WAITING, 90.0, 1)
            await stage.clock.advance(60)

    stage.play(scene)
    assert [type(error) for error in seen] == [Odd]
    assert (runs.at, other.at) == ([90], [30, 60, 90])


def test_an_async_hook_that_hangs_is_ended_by_the_timeout_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    runs = stage.runs(None, False)

    async def hangs(_outcome: Outcome) -> None:
        await asyncio.Event().wait()

    async def scene() -> None:
        loop = stage.add(runs, 10, timeout="5s", on_outcome=hangs)
        async with stage.app:
            await stage.clock.advance(15)
            assert (loop.state.phase, loop.state.failures, loop.state.last_ok) == (Phase.WAITING, 0, 15.0)
            await stage.clock.advance(15)
            assert (loop.state.failures, loop.state.last_error) == (1, "returned False")

    stage.play(scene)
    assert runs.at == [10, 25]
    reported = [record for record in caplog.records if "on_outcome hook" in record.message]
    assert [record.exc_info[0] for record in reported if record.exc_info] == [TimeoutError, TimeoutError]


def test_the_timeout_bounds_condition_function_and_hook_each_by_itself() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=4)

    async def slow_yes() -> bool:
        await asyncio.sleep(4)
        return True

    async def slow_hook(_outcome: Outcome) -> None:
        await asyncio.sleep(4)

    async def scene() -> None:
        loop = stage.add(runs, 10, timeout="5s", when=slow_yes, on_outcome=slow_hook)
        async with stage.app:
            await stage.clock.advance(22)
            assert (loop.state.failures, loop.state.last_ok) == (0, 22.0)

    stage.play(scene)
    assert runs.at == [14]
