"""Any object with `next_s` is a cadence; `Learned` puts its looks where earlier runs ended."""

import asyncio
import logging
import math
import sys
from random import Random
from typing import Any

import pytest

from bench import cadence
from everpoll import Backoff
from everpoll.engine.rate_limited_log import RateLimitedLog
from everpoll.errors import BadInput
from everpoll.policy import Rng
from everpoll.watches import Cadence, Done, History, Learned, PastRun, Wait, learned_plan
from everpoll.watches.cadence import Growing
from everpoll.watches.end_curve import POINTS, Curve
from everpoll.watches.learning import Learning, past_run
from everpoll.watches.memory import RunMemory
from everpoll.watches.past_runs import weighted
from everpoll.watches.runtime import Runtime
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


def test_until_five_runs_have_ended_learned_is_its_fallback() -> None:
    history = History(looks=2, elapsed_s=6, durations_s=(100.0,) * 4)
    assert Learned(FALLBACK).next_s(history, Random(1)) == 8


def test_learned_looks_first_where_runs_end_and_says_why() -> None:
    plan = Learned(FALLBACK).learn([PastRun(57, 63)] * 30)
    first_s, why = plan.wait_and_reason(History(), Random(1))
    assert 45 < first_s < 75
    assert why.startswith("half of the runs ended within the next 1m"), why
    beyond_s, why = plan.wait_and_reason(History(3, 500.0), Random(1))
    assert beyond_s == 16
    assert why == "longer than nearly all earlier runs: the backoff waits 16s"


def test_half_as_many_looks() -> None:
    rng = Random(1)
    runs = [PastRun(end, end) for end in (rng.lognormvariate(5, 0.5) for _ in range(100))]
    counts = {share: _looks_until(Learned(FALLBACK, looks=share), runs) for share in (1.0, 0.5)}
    plain = sum(_count(Growing(FALLBACK), run.ended_s) for run in runs)
    assert counts[1.0] <= plain
    assert counts[0.5] <= 0.55 * plain


def _looks_until(learned: Learned, runs: list[PastRun]) -> int:
    plan = learned.learn(runs)
    return sum(_count(plan, run.ended_s) for run in runs)


def _count(cadence: Cadence, duration_s: float) -> int:
    rng, at_s, looks = Random(2), 0.0, 0
    while at_s < duration_s:
        at_s += cadence.next_s(History(looks, at_s), rng)
        looks += 1
    return looks


def test_old_runs_are_forgotten_once_durations_have_changed() -> None:
    runs = [PastRun(300, 310)] * 6 + [PastRun(58, 62), PastRun(55, 66), PastRun(61, 64)] * 20
    assert len(weighted(runs)) == 6
    assert len(weighted(runs[6:])) == 60, "the rest is alike"


def test_a_plan_takes_as_many_steps_as_there_are_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: at most four solutions, of one step a point, whatever the history."""
    solved, sizes = learned_plan.solved, list[int]()

    def counted(curve: Curve, price_s: float) -> list[float]:
        sizes.append(len(curve.points))
        return solved(curve, price_s)

    monkeypatch.setattr(learned_plan, "solved", counted)
    rng = Random(3)
    Learned(FALLBACK).learn([PastRun(end * 0.9, end) for end in (rng.paretovariate(1.2) for _ in range(200))])
    assert 1 <= len(sizes) <= learned_plan.SOLUTIONS
    assert max(sizes) <= POINTS + 1


@pytest.mark.parametrize("name", ["about 60 s", "5 s or 180 s"])
def test_learned_makes_fewer_looks_and_finds_the_end_sooner(name: str) -> None:
    durations = cadence.drawn(cadence.FAMILIES[name], 1, 160)
    learned, plain = cadence.by_learning(durations, 1, skipped=60), cadence.by_backoff(durations, 2, skipped=60)
    assert learned.looks < 0.95 * plain.looks
    assert learned.delay_s < 0.95 * plain.delay_s


def test_no_thin_drifting_or_swapped_history_is_worse_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    families = {name: cadence.FAMILIES[name] for name in ("about 20 s, widely spread", "about 10 min")}
    monkeypatch.setattr(cadence, "FAMILIES", families)
    for kind, cases in cadence.hard_cases((1,)).items():
        assert cadence.worse_on_both(cases) == [], kind


@pytest.mark.prove
def test_no_history_of_any_family_is_worse_on_both() -> None:
    for kind, cases in cadence.hard_cases((1, 2, 3)).items():
        assert cadence.worse_on_both(cases) == [], kind


def test_an_honest_percentage_helps() -> None:
    assert cadence.progress_gain("honest", "about 10 min", (1,)) > 2.5


def test_rows_of_earlier_releases_are_understood_and_broken_ones_are_left_out() -> None:
    assert past_run({"took_s": 12.5}) == PastRun(12.5, 12.5)
    assert past_run({"span": [3, None]}) == PastRun(3, math.inf)
    assert past_run({"span": [3, 4], "marks": [[0.5, 2.0]]}) == PastRun(3, 4, ((0.5, 2.0),))
    broken: list[Any] = [None, [], {}, "x", {"span": [4, 3]}, {"span": ["x", 1]}, {"span": [-1, 2]}, {"span": [1]}]
    broken += [{"span": [10**400, None]}, {"span": ["nan", "nan"]}, {"span": [1, 2], "marks": 7}, {"took_s": -1}]
    assert [past_run(one) for one in broken] == [None] * len(broken)


def test_a_broken_mark_of_progress_does_not_lose_the_run() -> None:
    marks = [[0, 1], [0.5, 2.0], [1.5, 3], ["nan", 4], [0.7, "inf"], [0.9, -1]]
    assert past_run({"span": [3, 4], "marks": marks}) == PastRun(3, 4, ((0.5, 2.0),))


def test_rows_that_were_changed_by_hand_stop_no_run(stage: WatchStage, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = stage.watch(every=Learned(FALLBACK))
    stage.script(status=["running", "complete"])

    async def scene() -> None:
        store: Any = await stage.app.store()

        async def changed(*_: Any) -> list[Any]:
            return [{"span": [10**400, 1]}, {"span": [{}, []]}, 7, {"span": [1, 2], "marks": [[1, 2, 3]]}]

        monkeypatch.setattr(store, "last_results", changed)
        run = await watch.begin({}, id="r", handle="h")
        await run.result()
        assert (await run.info()).errors == 0

    stage.play(scene)


class _Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "learn_by",
    [
        "missing",
        lambda _op: 1 / 0,
        lambda _op: _Unprintable(),
        lambda _op: math.nan,
        lambda _op: "x" * 10_000,
        lambda _op: "\x00\ud800",
        lambda _op: sys.exit(3),
    ],
    ids=["missing", "raises", "unprintable", "nan", "long", "surrogate", "exits"],
)
def test_whatever_learn_by_does_the_run_goes_on(stage: WatchStage, learn_by: Any) -> None:
    stage.script(status=["running", "running", "complete"])
    watch = stage.watch(every=Learned(FALLBACK), learn_by=learn_by)

    async def scene() -> None:
        run = await watch.begin({}, id="r", handle="h")
        await run.result()
        info = await run.info()
        assert (info.outcome, info.looks, info.errors) == ("ready", 3, 0)

    stage.play(scene)


def test_learn_by_must_be_a_plain_function(stage: WatchStage) -> None:
    async def kind(_op: Any) -> str:
        return "small"

    with pytest.raises(BadInput, match="learn_by must be a plain function: write def"):
        stage.watch(every=Learned(FALLBACK), learn_by=kind)


def test_a_kind_for_each_operation_fills_no_memory() -> None:
    learning = Learning("watch 'query'", Learned(FALLBACK), str, RateLimitedLog(logging.getLogger("everpoll.watches")))
    learning.read([{"span": [1, 2], "learned_as": f"known {number}"} for number in range(1_000)])
    for number in range(10_000):
        learning.next_wait(learning.kind_of(number), 0, RunMemory("r"), 0.0, Random(1))
    assert len(learning._known) == 1
    for number in range(1_000):
        learning.next_wait(f"known {number}", 0, RunMemory("r"), 0.0, Random(1))
    assert len(learning._known) == 1_001


def test_kinds_without_a_history_leave_the_others_as_they_are() -> None:
    learning = Learning("watch 'query'", Learned(FALLBACK), str, RateLimitedLog(logging.getLogger("everpoll.watches")))
    learning.read([{"span": [57, 63]}] * 30)
    _, unknown = learning.next_wait("new", 0, RunMemory("r"), 0.0, Random(1))
    _, known = learning.next_wait("", 0, RunMemory("r"), 0.0, Random(1))
    assert str(unknown).startswith("fewer than 5 runs have ended")
    assert str(known).startswith("half of the runs ended within")


@pytest.mark.parametrize("share", [1.2, -0.1, math.nan, math.inf, "40 %"])
def test_progress_that_is_not_a_share_is_refused_with_what_to_write(share: Any) -> None:
    with pytest.raises(BadInput, match=r"progress=.*write a share, as 0\.4 for 40 %"):
        Wait(progress=share)


def test_what_was_learned_outlives_a_restart(stage: WatchStage) -> None:
    """All of it is in the rows of ended runs: the runtime of a new process reads it there."""

    async def look(op: Any, w: Any) -> Any:
        return Done() if w.elapsed >= op else Wait(progress=min(1.0, w.elapsed / op))

    watch = stage.watch(look, every=Learned(FALLBACK))

    async def scene() -> None:
        for number in range(6):
            await (await watch.begin(60, id=f"r{number}")).result()
        restarted = Runtime(stage.app.watches, watch)
        await restarted.learn()
        runs = restarted.learning.runs()
        assert [run.running_s < 60 <= run.ended_s for run in runs] == [True] * 6
        assert all(run.progress for run in runs)
        _, why = restarted.learning.next_wait("", 0, RunMemory("r"), 0.0, Random(1))
        assert str(why).startswith("half of the runs ended within the next")

    stage.play(scene)


def test_the_end_of_a_run_that_was_confirmed_is_its_first_sighting(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        return Done() if w.confirm("gone", w.elapsed >= 18, times=2, gap="60s") else Wait()

    watch = stage.watch(look, every="10s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        [result] = await (await stage.app.store()).last_results("watch", watch.name)
        running_s, ended_s = result["span"]
        assert running_s < 18 <= ended_s < 35

    stage.play(scene)


def test_each_kind_of_operation_has_its_own_history_and_progress_is_kept(stage: WatchStage) -> None:
    async def look(op: Any, w: Any) -> Any:
        return Done() if w.elapsed >= op["takes"] else Wait(progress=min(1.0, w.elapsed / op["takes"]))

    watch = stage.watch(look, every=Learned(FALLBACK), learn_by="size")

    async def scene() -> None:
        for number in range(6):
            for size, takes in (("small", 60), ("large", 200)):
                await (await watch.begin({"size": size, "takes": takes}, id=f"{size}{number}")).result()
        await asyncio.sleep(400)
        run = await watch.begin({"size": "large", "takes": 200}, id="last")
        await asyncio.sleep(1)
        learning = stage.runtime(watch).learning
        assert len(learning.runs("small")) == len(learning.runs("large")) == 6
        assert all(60 <= one.ended_s < 120 and one.progress for one in learning.runs("small"))
        assert "ended within the next" in (await run.info()).log[0].why
        await run.result()

    stage.play(scene)


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
