"""The order of the questions in a look, the delays between looks, and how a run ends when its budget is spent."""

import asyncio
from random import Random
from typing import Any

import pytest

from everpoll import Backoff, BadInput, Budget, RunFailed, RunTimedOut
from everpoll.watches import Done, Fail, Wait
from watches.stage import BUDGET, WatchStage


def test_delays_are_2_4_8_16_30_30(stage: WatchStage) -> None:
    watch = stage.whole()
    timeline = stage.timeline(watch)

    async def scene() -> None:
        await watch.begin({}, id="run-1")
        await asyncio.sleep(125)
        assert timeline.waits("run-1") == [2, 4, 8, 16, 30, 30, 30, 30]
        assert timeline.rules("run-1") == ["started"] + ["cadence"] * 7

    stage.play(scene)


def test_with_jitter_of_20_percent_to_either_side(stage: WatchStage) -> None:
    watch = stage.whole(every=Backoff("2s", factor=2, cap="30s", jitter=0.2))
    stage.runtime(watch).rng = Random(7)
    timeline = stage.timeline(watch)

    async def scene() -> None:
        for number in range(40):
            await watch.begin({}, id=f"run-{number}")
        await asyncio.sleep(300)
        for number in range(40):
            waits = timeline.waits(f"run-{number}")
            for wait_s, base_s in zip(waits, [2, 4, 8, 16] + [30] * 20, strict=False):
                assert 0.8 * base_s <= wait_s <= 1.2 * base_s
        thirties = [wait_s for number in range(40) for wait_s in timeline.waits(f"run-{number}")[4:]]
        assert min(thirties) < 25
        assert max(thirties) > 35

    stage.play(scene)


def test_time_is_over_after_29_minutes_with_a_last_look_at_the_very_end(stage: WatchStage) -> None:
    """The document's last look comes at 1770 s against a cap of 1740 s: here the last delay is clamped."""
    watch = stage.whole()
    timeline = stage.timeline(watch)

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunTimedOut, match="time budget of 29m is spent"):
            await run.result()
        last = stage.remote.times("status")[-1]
        assert last == pytest.approx(1740, abs=0.2)
        assert stage.clock.now() == pytest.approx(1740, abs=0.2)
        assert "deadline" in timeline.rules("run-1")
        assert (await run.info()).outcome == "timed_out"

    stage.play(scene)


def test_what_is_ready_at_the_last_look_is_ready(stage: WatchStage) -> None:
    watch = stage.whole()
    stage.script(status=lambda _: "complete" if stage.clock.now() >= 1735 else "running")

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        assert await run.result() == "id-1"

    stage.play(scene)


def test_120_looks_and_the_message_says_which_budget_and_its_figure(stage: WatchStage) -> None:
    watch = stage.whole(every=Backoff("2s", factor=1, jitter=0), budget=BUDGET)

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunTimedOut, match="budget of 120 looks is spent: 120 looks"):
            await run.result()
        assert stage.remote.count("status") == 120

    stage.play(scene)


def test_time_counts_from_the_persisted_start_over_any_outage(stage: WatchStage) -> None:
    """No worker runs for an hour: the deadline has passed, and the remote is not asked any more."""
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        async with stage.working():
            await asyncio.sleep(60)
        asked = stage.remote.count("status")
        await asyncio.sleep(3600)
        async with stage.working():
            await stage.ended(run)
        assert await stage.outcome(run) == "timed_out"
        assert stage.remote.count("status") == asked
        assert stage.remote.count("clean") == 1

    stage.play(scene, working=False)


def test_canceled_comes_before_the_budget_and_the_budget_before_the_remote(stage: WatchStage) -> None:
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        async with stage.working():
            await asyncio.sleep(60)
        await asyncio.sleep(3600)
        await run.cancel()
        async with stage.working():
            await stage.ended(run)
        assert await stage.outcome(run) == "canceled"

    stage.play(scene, working=False)


def test_a_status_is_trimmed_and_lower_case(stage: WatchStage) -> None:
    stage.script(status=["  Queued ", "\tCOMPLETE\n"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        await asyncio.sleep(3)
        assert (await run.info()).status == "queued"
        assert await run.result() == "id-1"
        assert (await run.info()).status == "complete"

    stage.play(scene)


def test_an_error_fails_at_once(stage: WatchStage) -> None:
    stage.script(status=["running", "Error"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunFailed, match="query:run-1 failed: the remote says so"):
            await run.result()
        assert stage.clock.now() == pytest.approx(6, abs=0.1)

    stage.play(scene)


def test_what_the_look_asks_for_is_waited_for_and_never_less(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Done | Wait:
        return Done() if w.looks == 3 else Wait("45s")

    watch = stage.watch(look)
    timeline = stage.timeline(watch)

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        await run.result()
        assert [45 <= wait_s <= 45 * 1.1 for wait_s in timeline.waits("run-1")] == [True, True]

    stage.play(scene)


def test_an_answer_that_is_none_means_wait(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Done | None:
        return Done("x") if w.looks == 2 else None

    watch = stage.watch(look)

    async def scene() -> None:
        assert await (await watch.begin({})).result() == "x"

    stage.play(scene)


def test_an_answer_that_is_no_verdict_fails_the_run_with_advice(stage: WatchStage) -> None:
    async def look(_op: Any, _w: Any) -> Any:
        return "complete"

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({})
        with pytest.raises(RunFailed, match="the look returned 'complete'; it returns Done"):
            await run.result()

    stage.play(scene)


def test_memory_of_ones_own_lasts_between_looks(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Done | Wait:
        w.memory["seen"] = w.memory.get("seen", 0) + 1
        return Done(w.memory["seen"]) if w.looks == 4 else Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        assert await (await watch.begin({})).result() == 4

    stage.play(scene)


def test_a_plain_function_is_looked_with_in_a_thread(stage: WatchStage) -> None:
    def look(_op: Any, w: Any) -> Done | Wait:
        return Done(w.looks) if w.looks == 2 else Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        assert await (await watch.begin({})).result() == 2

    stage.play(scene)


def test_evidence_of_a_failure_is_kept(stage: WatchStage) -> None:
    async def look(_op: Any, _w: Any) -> Fail:
        return Fail("quota exceeded", evidence={"code": 17})

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({})
        with pytest.raises(RunFailed, match="quota exceeded") as raised:
            await run.result()
        assert raised.value.evidence == {"code": 17}

    stage.play(scene)


def test_look_many_serves_all_runs_that_are_due_together(stage: WatchStage) -> None:
    sizes: list[int] = []
    watch = stage.watch(stage.plain_look)

    @watch.look_many
    async def many(runs: list[tuple[Any, Any]]) -> list[Done | Wait]:
        sizes.append(len(runs))
        return [Done(op) if w.looks == 2 else Wait() for op, w in runs]

    async def scene() -> None:
        runs = [await watch.begin(number) for number in range(30)]
        assert [await run.result() for run in runs] == list(range(30))
        assert sum(sizes) == 60
        assert len(sizes) <= 8

    stage.play(scene)


def test_look_many_that_answers_for_fewer_fails_no_run_at_once(stage: WatchStage) -> None:
    calls = 0
    watch = stage.watch(stage.plain_look)

    @watch.look_many
    async def many(runs: list[tuple[Any, Any]]) -> list[Done]:
        nonlocal calls
        calls += 1
        return [Done()] * (len(runs) if calls > 1 else 0)

    async def scene() -> None:
        run = await watch.begin({})
        await run.result()
        assert (await run.info()).errors == 1

    stage.play(scene)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget": "29m"}, "a watch needs a budget"),
        ({"every": None}, "every=None: write Backoff"),
        ({"name": "a:b"}, "without ':'"),
        ({"timeout": 0}, "timeout"),
        ({"rate": 5}, "rate=5: write Rate"),
        ({"breaker": 5}, "breaker=5: write Breaker"),
        ({"outage": "wait"}, "outage='wait': write"),
        ({"colour": "red"}, "there is no option 'colour'"),
        ({"version": 0}, "version=0"),
    ],
)
def test_bad_options_are_refused_with_what_to_write(stage: WatchStage, options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        stage.watch(**options)


def test_a_function_that_asks_for_what_there_is_not_is_refused(stage: WatchStage) -> None:
    watch = stage.watch()
    with pytest.raises(BadInput, match="there is no parameter 'run'; its parameters may be op, key"):

        @watch.start
        async def start(_op: Any, run: Any) -> None: ...


def test_names_are_taken_once(stage: WatchStage) -> None:
    stage.watch()
    with pytest.raises(BadInput, match="'query' is registered already"):
        stage.watch()


def test_a_watch_and_a_job_share_their_names(stage: WatchStage) -> None:
    """Both would run the tasks of that name; the last one would, silently, run them all."""
    stage.watch()
    stage.app.job(name="sweep")(print)
    with pytest.raises(BadInput, match="watch 'query' is registered already"):
        stage.app.job(name="query")(print)
    with pytest.raises(BadInput, match="'sweep' is registered already"):
        stage.watch(name="sweep")


def test_an_interval_is_a_cadence_too(stage: WatchStage) -> None:
    watch = stage.watch(every="10s", budget=Budget("1h"))
    timeline = stage.timeline(watch)

    async def scene() -> None:
        await watch.begin({}, id="r")
        await asyncio.sleep(60)
        assert all(9 <= wait_s <= 11 for wait_s in timeline.waits("r"))

    stage.play(scene)
