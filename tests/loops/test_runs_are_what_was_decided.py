"""A run is what was decided: with the function, condition and hook it was begun with, and begun once."""

import asyncio
from typing import Any

from everpoll import Outcome, Phase
from loops.stage import Stage


def test_replaced_before_its_first_step_the_old_function_runs_and_its_result_is_dropped() -> None:
    stage = Stage()
    old, new = stage.runs(False), stage.runs()
    asked: list[str] = []
    heard: list[Outcome] = []

    def new_condition() -> bool:
        asked.append("new")
        return False

    def replaces_the_other() -> bool:
        if not old.at:
            stage.add(new, 100, when=new_condition)
        return False

    async def scene() -> None:
        # Both are due at 30: the first run is decided, and replaced before the event loop takes its first step.
        loop = stage.add(old, on_outcome=heard.append)
        stage.add(stage.runs(), name="other", when=replaces_the_other)
        async with stage.app:
            await stage.clock.advance(31)
            assert (old.at, new.at, asked) == ([30], [], [])
            assert (loop.state.failures, loop.state.last_error, loop.state.next_due) == (0, None, 130.0)
            await stage.clock.advance(100)

    stage.play(scene)
    assert ([outcome.kind for outcome in heard], new.at, asked) == (["failed"], [], ["new"])


def test_replaced_before_its_condition_is_asked_the_new_function_does_not_run_on_the_old_answer() -> None:
    stage = Stage()
    old, new = stage.runs(), stage.runs()
    asked: list[str] = []

    async def old_condition() -> bool:
        asked.append("old")
        return True

    async def new_condition() -> bool:
        asked.append("new")
        return False

    def replaces_the_other() -> bool:
        if not asked:
            stage.add(new, 100, when=new_condition)
        return False

    async def scene() -> None:
        loop = stage.add(old, when=old_condition)
        stage.add(stage.runs(), name="other", when=replaces_the_other)
        async with stage.app:
            await stage.clock.advance(31)
            assert (asked, old.at, new.at) == (["old"], [], [])
            assert (loop.state.failures, loop.state.skips, loop.state.next_due) == (0, {}, 130.0)
            await stage.clock.advance(100)
            assert loop.state.skips == {"condition": 1}

    stage.play(scene)
    assert (asked, new.at) == (["old", "new"], [])


def test_replaced_without_a_condition_while_the_old_one_is_asked() -> None:
    stage = Stage()
    old, new = stage.runs(), stage.runs()

    async def slow_yes() -> bool:
        await asyncio.sleep(5)
        return True

    async def scene() -> None:
        loop = stage.add(old, when=slow_yes)
        async with stage.app:
            await stage.clock.advance(31)
            stage.add(new, 50)
            await stage.clock.advance(5)
            assert (old.at, new.at, loop.state.next_due) == ([], [], 81.0)
            await stage.clock.advance(45)

    stage.play(scene)
    assert new.at == [81]


def refusing(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> "asyncio.Task[Any]":
    """Stands in for the eager task factory before Python 3.12, which would begin a run in the middle of a decision."""
    assert "Loop._execute" not in coro.__qualname__
    return asyncio.Task(coro, loop=loop, **options)


EAGER: Any = vars(asyncio).get("eager_task_factory", refusing)


def test_an_eager_task_factory_does_not_run_it_in_the_middle_of_the_decision() -> None:
    stage = Stage()
    runs = stage.runs(None, False)
    heard: list[str] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_task_factory(EAGER)
        loop = stage.add(runs, on_outcome=lambda outcome: heard.append(outcome.kind))
        async with stage.app:
            answer = loop.trigger()
            assert (runs.at, loop.state.phase) == ([], Phase.RUNNING)
            assert (await answer).ok
            await stage.clock.advance(31)
            assert (loop.state.runs, loop.state.failures, loop.state.phase) == (2, 1, Phase.WAITING)

    stage.play(scene)
    assert (runs.at, heard) == ([0, 30], ["ok", "failed"])


def test_a_run_that_triggers_itself_does_not_nest_whatever_makes_tasks() -> None:
    stage = Stage()
    runs = 0

    async def scene() -> None:
        asyncio.get_running_loop().set_task_factory(EAGER)

        async def again() -> None:
            nonlocal runs
            runs += 1
            if runs < 3000:
                stage.app.loops["prices"].trigger()

        loop = stage.add(again)
        async with stage.app:
            await stage.clock.advance(30)
            assert (runs, loop.state.runs, loop.state.failures, loop.state.in_flight) == (3000, 3000, 0, 0)

    stage.play(scene)
