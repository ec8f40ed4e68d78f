"""The schedule is a seam: any pure object is a cadence; one that learns looks where runs end."""

import asyncio
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import cadence
from everpoll import Backoff
from everpoll.policy import Rng
from everpoll.watches import Done, History, Learned, Wait
from everpoll.watches.cadence import Growing
from watches.stage import WatchStage

FALLBACK = Backoff("2s", cap="30s", jitter=0)


def test_any_object_with_next_s_is_a_cadence_and_is_told_the_history(stage: WatchStage) -> None:
    asked: list[History] = []

    class Fixed:
        def next_s(self, history: History, rng: Rng) -> float:
            del rng
            asked.append(history)
            return 10.0

    watch = stage.whole(every=Fixed())

    async def scene() -> None:
        await watch.begin({}, id="r")
        await asyncio.sleep(45)
        assert [one.looks for one in asked] == [0, 1, 2, 3, 4]
        assert [round(one.elapsed_s) for one in asked] == [0, 10, 20, 30, 40]

    stage.play(scene)


def test_a_backoff_is_the_first_cadence() -> None:
    waits = [Growing(FALLBACK).next_s(History(looks), Random(1)) for looks in range(6)]
    assert waits == [2, 4, 8, 16, 30, 30]


def test_until_it_has_seen_enough_runs_learned_is_its_fallback() -> None:
    learned = Learned(FALLBACK, needed=20)
    history = History(looks=2, elapsed_s=6, durations_s=(100.0,) * 19)
    assert learned.next_s(history, Random(1)) == 8


def test_learned_looks_often_where_many_runs_end_and_seldom_where_few_do() -> None:
    learned = Learned(Backoff("2s", cap="5m", jitter=0), look_worth="2s")
    durations = tuple(float(one) for one in range(100, 200))
    first_s = learned.next_s(History(0, 0.0, durations), Random(1))
    assert first_s == pytest.approx(math.sqrt(2 * 2 * 100 * 109 / 10))
    among = learned.next_s(History(1, 150.0, durations), Random(1))
    assert among == pytest.approx(math.sqrt(2 * 2 * 49 * 4 / 4))
    beyond = learned.next_s(History(5, 500.0, durations), Random(1))
    assert beyond == 64, "longer than any run before: the fallback goes on"


def test_over_10_000_runs_of_mixed_length_learned_is_no_later_and_uses_no_more_looks() -> None:
    """The table in docs/explanation is made by the same simulation: `make bench ARGS=cadence`."""
    document, learned = cadence.simulated()
    for figure in ("looks", "mean_s", "median_s", "p95_s"):
        assert getattr(learned, figure) <= getattr(document, figure), figure


def test_durations_of_ended_runs_are_kept_per_watch_and_handed_to_the_cadence(stage: WatchStage) -> None:
    asked: list[History] = []

    class Spy:
        def next_s(self, history: History, rng: Rng) -> float:
            del rng
            asked.append(history)
            return 5.0

    async def look(op: Any, w: Any) -> Any:
        return Done() if w.elapsed >= op["takes"] else Wait()

    watch = stage.watch(look, every=Spy())

    async def scene() -> None:
        for number in range(3):
            run = await watch.begin({"takes": 20 + number * 10}, id=f"r{number}")
            await run.result()
        await asyncio.sleep(400)
        asked.clear()
        run = await watch.begin({"takes": 5}, id="last")
        await run.result()
        assert [round(one, 1) for one in asked[-1].durations_s] == [37.5, 27.5, 17.5], "in the middle of the last gap"

    stage.play(scene)


def test_the_figures_in_the_documentation_are_those_of_the_simulation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "when-to-look.md").read_text(encoding="utf-8")
    document, learned = cadence.simulated()
    for label, figure in (
        ("looks a run", "looks"),
        ("mean s", "mean_s"),
        ("median s", "median_s"),
        ("95 % s", "p95_s"),
    ):
        assert f"{label} | {getattr(document, figure):.2f} | {getattr(learned, figure):.2f} |" in page
