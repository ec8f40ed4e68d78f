"""State changes are logged, each once; ordinary runs are silent; and a loop is small enough for 100,000 of them."""

import logging
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from everpoll import Breaker, Everpoll, Loop, Stop
from loops.stage import Stage

Scene = Callable[[Stage, Loop], Any]


def answer(caplog: pytest.LogCaptureFixture, answers: list[object], scene: Scene, **options: Any) -> list[str]:
    stage = Stage()

    async def play() -> None:
        loop = stage.add(stage.runs(*answers), **options)
        async with stage.app:
            await scene(stage, loop)

    with caplog.at_level(logging.INFO, logger="everpoll"):
        stage.play(play)
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_failure_and_recovery(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage, _loop: Loop) -> None:
        await stage.clock.advance(300)

    assert answer(caplog, [None, False, ValueError("x")], scene) == [
        "WARNING loop 'prices' failed: returned False (failures: 1, next run in 1m)",
        "WARNING loop 'prices' failed: ValueError: x (failures: 2, next run in 2m)",
        "INFO loop 'prices' recovered after 2 failures, next run in 30s",
    ]


def test_ordinary_runs_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage, loop: Loop) -> None:
        await stage.clock.advance(3000)
        await loop.trigger()

    assert answer(caplog, [], scene) == []


def test_pause_and_resume_also_during_a_run(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage, loop: Loop) -> None:
        loop.pause()
        loop.pause("hidden")
        loop.resume("hidden")
        await stage.clock.advance(5)
        loop.resume()
        loop.trigger()
        loop.pause()
        await stage.clock.advance(5)
        loop.resume()

    assert answer(caplog, [], scene) == [
        "INFO loop 'prices' is paused, next run not scheduled",
        "INFO loop 'prices' is waiting, next run in 25s",
        "INFO loop 'prices' is paused, next run not scheduled",
        "INFO loop 'prices' is waiting, next run in 25s",
    ]


def test_breaker_stop_and_reset(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage, loop: Loop) -> None:
        await stage.clock.advance(30)
        loop.reset()
        await stage.clock.advance(30)

    assert answer(caplog, [False, Stop("sold out")], scene, breaker=Breaker(1, "5m")) == [
        "WARNING loop 'prices' failed: returned False (failures: 1, next run in 5m)",
        "WARNING loop 'prices': breaker opened, one probe in 5m",
        "INFO loop 'prices' stopped: sold out",
    ]


def test_starting_and_closing_is_no_news_of_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage, _loop: Loop) -> None:
        await stage.app.loops.close()
        await stage.app.loops.start()

    assert answer(caplog, [], scene) == []


def test_every_run_is_told_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def play() -> None:
        stage.add(stage.runs())
        async with stage.app:
            await stage.clock.advance(30)

    with caplog.at_level(logging.DEBUG, logger="everpoll"):
        stage.play(play)
    assert "loop 'prices': waiting → running, next run not scheduled" in caplog.messages


def test_a_loop_costs_less_than_a_kilobyte() -> None:
    async def look() -> None:
        """Shared by all."""

    app, count = Everpoll(), 5_000
    names = [f"loop-{number}" for number in range(count)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for name in names:
            app.loops.add(look, 30, name=name)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 1000
