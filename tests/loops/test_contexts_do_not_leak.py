"""Context variables: a run begins in the context of the start, a triggered one in its trigger's, and nothing leaks."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from everpoll import Loop
from loops.stage import Stage, in_turn, turns

request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")

ACTS: dict[str, Callable[[Stage, Loop], object]] = {
    "trigger": lambda _, loop: loop.trigger(),
    "reset": lambda _, loop: loop.reset(),
    "pause": lambda _, loop: loop.pause(),
    "pause and resume": lambda _, loop: in_turn(loop.pause, loop.resume),
    "pause and resume all": lambda stage, _: in_turn(stage.app.loops.pause, stage.app.loops.resume),
    "push": lambda _, loop: in_turn(loop.push_connected, loop.push_lost),
    "replace": lambda stage, _: stage.add(stage.runs(), 10, "moved"),
    "register": lambda stage, _: stage.add(stage.runs(), 5, "late"),
}


def recorder(seen: list[str], in_thread: bool = False) -> Callable[[], Any]:
    def plain() -> None:
        seen.append(request.get())

    async def slow() -> None:
        seen.append(request.get())

    return plain if in_thread else slow


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("in_thread", [False, True])
def test_moving_the_deadline_of_one_loop_is_not_seen_by_another(act: str, in_thread: bool) -> None:
    stage = Stage()
    seen: list[str] = []
    asked: list[str] = []

    def when() -> bool:
        asked.append(request.get())
        return True

    async def scene() -> None:
        stage.add(recorder(seen, in_thread), 30, "watched", when=when)
        moved = stage.add(stage.runs(), 10, "moved")
        async with stage.app:

            async def handler() -> None:
                request.set("request 42")
                ACTS[act](stage, moved)

            # Later than the start, so that the handler is who sets the one timer anew.
            await stage.clock.advance(1)
            await asyncio.ensure_future(handler())
            await stage.clock.advance(64)

    stage.play(scene)
    assert (seen, asked) == (["none", "none"], ["none", "none"])


@pytest.mark.parametrize("act", [act for act in ACTS if act not in ("trigger", "pause")])
def test_nor_by_the_loop_itself_unless_it_is_a_trigger(act: str) -> None:
    stage = Stage()
    seen: list[str] = []

    async def scene() -> None:
        loop = stage.add(recorder(seen), 10, "watched")
        async with stage.app:

            async def handler() -> None:
                request.set("request 42")
                ACTS[act](stage, loop)

            await asyncio.ensure_future(handler())
            await stage.clock.advance(25)

    stage.play(scene)
    assert set(seen) == {"none"}


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_triggered_run_sees_its_trigger_and_the_next_one_does_not(in_thread: bool) -> None:
    stage = Stage()
    seen: list[str] = []

    async def scene() -> None:
        loop = stage.add(recorder(seen, in_thread))
        async with stage.app:

            async def handler() -> None:
                request.set("request 42")
                await loop.trigger()

            await asyncio.ensure_future(handler())
            await stage.clock.advance(31)

    stage.play(scene)
    assert seen == ["request 42", "none"]


def test_runs_begin_in_the_context_of_the_start() -> None:
    stage = Stage()
    seen: list[str] = []

    async def scene() -> None:
        stage.add(recorder(seen), 10)
        request.set("start")
        async with stage.app:
            request.set("later")
            await stage.clock.advance(25)

    stage.play(scene)
    assert seen == ["start", "start"]


def test_what_a_run_sets_is_gone_with_it() -> None:
    stage = Stage()
    seen: list[str] = []

    async def scene() -> None:
        async def look() -> None:
            seen.append(request.get())
            request.set("mine")

        stage.add(look, 10, "one")
        stage.add(recorder(seen), 10, "other")
        async with stage.app:
            await stage.clock.advance(25)
            await turns()

    stage.play(scene)
    assert seen == ["none"] * 4


def test_what_a_plain_condition_sets_is_not_seen_by_the_conditions_of_others() -> None:
    stage = Stage()
    seen: list[str] = []

    def sets() -> bool:
        request.set("mine")
        return False

    def sees() -> bool:
        seen.append(request.get())
        return False

    async def scene() -> None:
        stage.add(stage.runs(), 10, "one", when=sets)
        stage.add(stage.runs(), 10, "other", when=sees)
        async with stage.app:
            await stage.clock.advance(25)

    stage.play(scene)
    assert seen == ["none", "none"]


def test_a_follow_up_does_not_begin_in_the_context_of_the_run_before() -> None:
    stage = Stage()
    seen: list[str] = []

    async def scene() -> None:
        async def look() -> None:
            seen.append(request.get())
            request.set("the run before")
            if len(seen) == 1:
                stage.app.loops["prices"].trigger()

        stage.add(look, 10)
        async with stage.app:
            await stage.clock.advance(15)

    stage.play(scene)
    assert seen == ["none", "none"]
