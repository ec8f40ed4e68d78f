"""When the next look is: the one rule, on its own."""

import math
from typing import Any

import pytest

from everpoll import Budget
from everpoll.watches import Done, Learned, Wait
from everpoll.watches.schedule import LookTimes, NextLook, is_last, next_look, spent
from watches.stage import DOCUMENT, WatchStage

BUDGET = Budget("100s", looks=10)


def planned(elapsed_s: float = 0.0, **wishes: Any) -> NextLook:
    given: dict[str, Any] = {"cadence_s": 10.0, "hints": {}} | wishes
    return next_look(LookTimes(**given), BUDGET, 1_000.0, elapsed_s)


@pytest.mark.parametrize(
    ("wishes", "delay_s", "rule"),
    [
        ({}, 10, "cadence"),
        ({"hints": {"a": 1_020.0, "b": 1_015.0}}, 15, "hint"),
        ({"hints": {"passed": 999.0, "b": 1_015.0}}, 15, "hint"),
        ({"hints": {"passed": 999.0}}, 10, "cadence"),
        ({"hints": {"now": 1_000.0}}, 10, "cadence"),
        ({"after_s": 5.0}, 10, "cadence"),
        ({"after_s": 20.0}, 20, "after"),
        ({"after_s": 20.0, "floor_s": 15.0}, 20, "after"),
        ({"after_s": 20.0, "floor_s": 30.0}, 30, "retry-after"),
        ({"hints": {"a": 1_012.0}, "floor_s": 30.0}, 30, "retry-after"),
        ({"floor_s": 30.0, "chance": 0.5}, 31.5, "retry-after"),
        ({"cadence_s": 40.0, "floor_s": 30.0, "chance": 0.5}, 40, "cadence"),
        ({"floor_s": 99.0, "chance": 0.9}, 100, "deadline"),
        ({"elapsed_s": 95.0}, 5, "deadline"),
        ({"elapsed_s": 500.0}, 0, "deadline"),
    ],
)
def test_the_earliest_hint_else_the_cadence_above_the_floors_within_the_deadline(
    wishes: dict[str, Any], delay_s: float, rule: str
) -> None:
    look = planned(**wishes)
    assert look.delay_s == pytest.approx(delay_s)
    assert look.rule == rule


@pytest.mark.parametrize(
    ("elapsed_s", "looks", "may_look", "is_the_last"),
    [(0, 0, True, False), (99, 9, True, False), (100, 9, True, True), (104, 9, True, True), (106, 9, False, True)],
)
def test_the_look_that_was_clamped_to_the_deadline_may_come_a_little_late(
    elapsed_s: float, looks: int, may_look: bool, is_the_last: bool
) -> None:
    assert (spent(BUDGET, elapsed_s, looks) is None) is may_look
    assert is_last(BUDGET, elapsed_s) is is_the_last


def test_looks_that_are_spent_say_so_also_behind_the_deadline() -> None:
    assert spent(BUDGET, 500.0, 10) == "budget of 10 looks is spent: 10 looks since the start"


def test_a_run_that_was_given_up_teaches_that_it_ran_at_least_so_long(stage: WatchStage) -> None:

    async def look(op: Any, w: Any) -> Any:
        return Done() if w.elapsed >= op else Wait()

    watch = stage.watch(look, every=Learned(DOCUMENT), budget=Budget("1m"))

    async def scene() -> None:
        for takes in (30, 1_000):
            await stage.ended(await watch.begin(takes, id=f"takes {takes}"))
        canceled = await watch.begin(1_000, id="canceled")
        await stage.clock.advance(20)
        await canceled.cancel()
        await stage.ended(canceled)
        await stage.runtime(watch).learn()
        runs = stage.runtime(watch).learning.runs()
        assert [run.ended_s == math.inf for run in runs] == [True, True, False]
        assert all(0 < run.running_s <= 65 for run in runs)

    stage.play(scene)
