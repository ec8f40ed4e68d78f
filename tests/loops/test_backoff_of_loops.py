"""Failures multiply the interval by min(2^n, cap) from the completion; Retry-After is a floor above any cap."""

import asyncio
import math
from datetime import timedelta
from typing import Any

import pytest

from everpoll import Failed, Snooze
from everpoll.policy import LONGEST_S
from loops.stage import Stage


def delays(count: int, answers: list[object], **options: Any) -> list[float]:
    """The time between each completion and the next start."""
    stage = Stage()
    runs = stage.runs(*answers, takes_s=3)

    async def scene() -> None:
        stage.add(runs, **options)
        async with stage.app:
            while len(runs.at) <= count:
                await stage.clock.advance(60)

    stage.play(scene)
    return [after - before - 3 for before, after in zip(runs.at[:count], runs.at[1:], strict=False)]


def test_semantics_03_base_times_two_to_the_n_capped_at_8() -> None:
    assert delays(6, [False] * 6) == [60, 120, 240, 240, 240, 240]


def test_semantics_03_retry_after_below_the_backoff_changes_nothing() -> None:
    assert delays(2, [Failed("429", retry_after="10s"), Failed("429", retry_after=100)]) == [60, 120]


def test_semantics_03_no_overflow_at_2000_failures() -> None:
    stage = Stage()
    runs = stage.runs(*[False] * 2000)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            for _ in range(2000):
                await loop.trigger()
            assert (loop.state.failures, loop.state.multiplier) == (2000, 8.0)
            assert loop.state.next_due == stage.clock.now() + 240

    stage.play(scene)


def test_edge_cap_1_never_backs_off() -> None:
    assert delays(4, [False] * 4, cap=1) == [30, 30, 30, 30]


@pytest.mark.parametrize("cap", ["100s", timedelta(seconds=100)])
def test_a_cap_that_is_a_duration_is_the_longest_wait(cap: str | timedelta) -> None:
    assert delays(4, [False] * 4, cap=cap) == [60, 100, 100, 100]


@pytest.mark.parametrize("cap", [None, math.inf])
def test_edge_cap_infinity_doubles_up_to_ten_years(cap: float | None) -> None:
    assert delays(10, [False] * 10, cap=cap) == [30.0 * 2**n for n in range(1, 11)]
    stage = Stage()
    runs = stage.runs(*[False] * 2000)

    async def scene() -> None:
        loop = stage.add(runs, cap=cap)
        async with stage.app:
            for _ in range(2000):
                await loop.trigger()
            assert loop.state.next_due == stage.clock.now() + LONGEST_S
            assert loop.next_due_at is not None

    stage.play(scene)


def test_edge_retry_after_longer_than_the_cap() -> None:
    assert delays(2, [Failed("429", retry_after="1h"), Failed("429", retry_after="1h")]) == [3600, 3600]


def test_edge_retry_after_longer_than_the_cap_is_never_undercut_by_jitter() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(*[Failed("429", retry_after=600)] * 3), jitter=1)
        async with stage.app:
            for chance, due_in in ((0.0, 600.0), (0.5, 900.0), (0.999, 1199.4)):
                stage.chance.value = chance
                await loop.trigger()
                assert loop.state.next_due is not None
                assert math.isclose(loop.state.next_due - stage.clock.now(), due_in)

    stage.play(scene)


def test_mistake_07_from_the_completion_at_first_and_at_the_cap() -> None:
    assert delays(5, [False] * 5, cap=2) == [60, 60, 60, 60, 60]


def test_mistake_10_every_outcome_records_the_last_run() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(ValueError("x"), False, None, takes_s=1))
        async with stage.app:
            for started in (0.0, 1.0, 2.0):
                await loop.trigger()
                assert (loop.state.last_started, loop.state.last_completed) == (started, started + 1)

    stage.play(scene)


def test_semantics_03_a_fixed_rate_backs_off_from_the_completion_of_slow_runs() -> None:
    stage = Stage()
    runs = stage.runs(*[False] * 6, takes_s=10)

    async def scene() -> None:
        stage.add(runs, 1, fixed_rate=True)
        async with stage.app:
            await stage.clock.advance(100)

    stage.play(scene)
    rests = [after - before - 10 for before, after in zip(runs.at, runs.at[1:], strict=False)]
    assert rests[:6] == [2, 4, 8, 8, 8, 8]


def test_semantics_03_a_fixed_rate_backs_off_from_a_timeout() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=1e6)

    async def scene() -> None:
        loop = stage.add(runs, 1, fixed_rate=True, timeout="10s")
        async with stage.app:
            await stage.clock.advance(100)
            assert loop.state.multiplier == 8

    stage.play(scene)
    assert [after - before - 10 for before, after in zip(runs.at, runs.at[1:], strict=False)] == [2, 4, 8, 8, 8, 8]


def test_semantics_03_a_cap_that_is_no_whole_number_leaves_a_fixed_rate_on_its_grid() -> None:
    stage = Stage()
    runs = stage.runs(*[False] * 3)

    async def scene() -> None:
        stage.add(runs, 10, fixed_rate=True, cap=2.5)
        async with stage.app:
            await stage.clock.advance(110)

    stage.play(scene)
    assert runs.at == [10, 30, 60, 90, 100, 110]


@pytest.mark.parametrize("answer", [asyncio.CancelledError(), Snooze("1s")])
def test_semantics_03_retry_after_holds_over_a_triggered_run_without_an_answer(answer: object) -> None:
    stage = Stage()
    runs = stage.runs(Failed("429", retry_after="1h"), answer)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(30)
            await stage.clock.advance(5)
            assert (await loop.trigger()).kind in ("canceled", "snoozed")
            assert (loop.state.failures, loop.state.next_due) == (1, 3630.0)
            await stage.clock.advance(3595)

    stage.play(scene)
    assert runs.at == [30, 35, 3630]


def test_semantics_03_retry_after_holds_over_a_run_that_is_canceled_from_outside() -> None:
    stage = Stage()
    runs = stage.runs(Failed("429", retry_after="1h"), takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await loop.trigger()
            answer = loop.trigger()
            await stage.clock.advance(1)
            assert loop._run is not None
            assert loop._run.task is not None
            loop._run.task.cancel()
            assert (await answer).kind == "canceled"
            assert loop.state.next_due == 3605.0

    stage.play(scene)
