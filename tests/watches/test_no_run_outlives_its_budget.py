"""A function that hangs or swallows its cancellation keeps no run alive beyond its budget, and no slot."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everpoll import Backoff, Breaker, Budget, Everpoll, RunCanceled, RunTimedOut
from everpoll.engine.pool import OVERDUE_S
from everpoll.testing import Timeline
from everpoll.watches import Done, Wait, Watch
from watches.stage import WatchStage

STEADY = Backoff("1s", factor=1, jitter=0)


async def stubborn(ends: asyncio.Event) -> None:
    """Swallow every cancellation until the test is over."""
    while not ends.is_set():
        try:
            await ends.wait()
        except asyncio.CancelledError:
            continue


def play(stage: WatchStage, ends: asyncio.Event, scene: Callable[[], Awaitable[None]]) -> None:
    """Run the scene, and let what swallows its cancellation end with it."""

    async def to_its_end() -> None:
        try:
            await scene()
        finally:
            ends.set()

    stage.play(to_its_end)


def one_slot() -> WatchStage:
    stage = WatchStage()
    stage.app = Everpoll("memory://", clock=stage.clock, slots=1)
    return stage


def hanging(stage: WatchStage, what: str, ends: asyncio.Event) -> Watch[Any]:
    """A watch of which one function hangs, and swallows its cancellation."""

    async def hang_if(name: str) -> None:
        if name == what:
            await stubborn(ends)

    async def look(_op: Any, w: Any) -> Any:
        await hang_if("look")
        if what == "verify":
            return w.verify("rows")
        return Wait() if what == "cancel" and not w.is_canceling else Done()

    budgets = {"budget": Budget("30s"), "cancel_budget": "5s", "cleanup_budget": "5s"}
    watch = stage.watch(look, every=STEADY, timeout="10s", **budgets)

    @watch.verify("rows")
    async def rows(_op: Any) -> bool:
        await hang_if("verify")
        return True

    @watch.start
    async def start(_op: Any) -> str | None:
        await hang_if("start")
        return None if what == "adopt" else "id-1"

    @watch.adopt
    async def adopt(_op: Any) -> None:
        await hang_if("adopt")

    @watch.cancel
    async def cancel(_op: Any) -> None:
        await hang_if("cancel")

    @watch.cleanup
    async def cleanup(_op: Any) -> None:
        await hang_if("cleanup")

    return watch


@pytest.mark.parametrize("what", ["look", "start", "cancel", "cleanup", "verify", "adopt"])
def test_a_function_that_swallows_its_cancellation_holds_its_slot_for_its_timeout_and_a_grace(what: str) -> None:
    stage, ends = one_slot(), asyncio.Event()
    watch = hanging(stage, what, ends)

    @stage.app.watch(every=STEADY, budget=Budget("1h"))
    async def other(_op: Any, _w: Any) -> Done:
        return Done("other")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        if what == "cancel":
            await asyncio.sleep(1.5)
            await run.cancel("not needed")
        await asyncio.sleep(0.5)
        behind = await other.begin({}, id="behind")
        began = stage.clock.now()
        assert await behind.result("1h") == "other"
        # The last calls of a budget are short: half a minute of waiting would be the whole budget.
        assert stage.clock.now() - began <= 10 + OVERDUE_S + 3
        # Every call may hang: those of the budget of 30 s, then those of the cleanup's 5 s, each with its grace.
        await stage.ended(run, within_s=30 + 5 + 3 * (OVERDUE_S + 5) + 30)
        info = await run.info()
        assert info.outcome == {"cancel": "canceled", "cleanup": "ready"}.get(what, "timed_out")
        assert "goes on although it was canceled" in str(info.log)
        if what == "cancel":
            assert info.reason is not None
            assert "failed: JobTimeout" in info.reason

    play(stage, ends, scene)


def test_what_an_abandoned_look_returns_in_the_end_is_ignored() -> None:
    stage, ends, returned = one_slot(), asyncio.Event(), asyncio.Event()

    async def look(_op: Any, w: Any) -> Any:
        if w.looks > 1:
            return Wait()
        await stubborn(ends)
        w.memory["late"] = True
        w.status("late")
        returned.set()
        return Done("late")

    watch = stage.watch(look, every=STEADY, budget=Budget("1h"), timeout="10s")
    timeline = Timeline(watch)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(60)
        decisions, counted = timeline.of("r"), dict(watch.counters)
        looks = (await run.info()).looks
        ends.set()
        await returned.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (timeline.of("r"), dict(watch.counters)) == (decisions, counted)
        info = await run.info()
        assert (info.outcome, info.memory, info.status) == (None, {}, None)
        await asyncio.sleep(10)
        assert (await run.info()).looks == pytest.approx(looks + 10, abs=1), "it is looked at as before"

    play(stage, ends, scene)


@pytest.mark.parametrize("together", [False, True])
def test_a_look_that_hangs_ends_with_the_budget_and_not_with_its_timeout(stage: WatchStage, together: bool) -> None:
    async def look(_op: Any, _w: Any) -> Any:
        await asyncio.sleep(3600)

    watch = stage.watch(look, every=STEADY, budget=Budget("3s"))
    if together:

        @watch.look_many
        async def many(_runs: list[tuple[Any, Any]]) -> list[Any]:
            await asyncio.sleep(3600)
            return []

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut, match="time budget of 3s is spent"):
            await run.result()
        assert stage.clock.now() == pytest.approx(3, abs=0.1)

    stage.play(scene)


def test_the_last_look_at_the_end_of_the_budget_has_a_moment_to_answer(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        await asyncio.sleep(0 if w.looks == 1 else 3)
        return Done() if w.looks == 2 else Wait()

    watch = stage.watch(look, every="1h", budget=Budget("10m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        assert stage.clock.now() == pytest.approx(603, abs=0.1)

    stage.play(scene)


@pytest.mark.parametrize("what", ["cancel", "look"])
def test_a_cancel_that_hangs_ends_with_its_budget_and_not_with_its_timeout(stage: WatchStage, what: str) -> None:
    async def look(_op: Any, w: Any) -> Wait:
        if w.is_canceling and what == "look":
            await asyncio.sleep(3600)
        return Wait()

    watch = stage.with_start(stage.watch(look, cancel_budget="2s"))

    @watch.cancel
    async def cancel(_op: Any) -> None:
        if what == "cancel":
            await asyncio.sleep(3600)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        await run.cancel()
        with pytest.raises(RunCanceled, match=f"the {what} failed: JobTimeout"):
            await run.result()
        assert stage.clock.now() == pytest.approx(3, abs=0.1)

    stage.play(scene)


def test_a_start_and_a_cleanup_that_hang_end_with_their_budgets(stage: WatchStage) -> None:
    watch = stage.watch(every=STEADY, budget=Budget("5s"), cleanup_budget="2s")

    @watch.start
    async def start(_op: Any) -> None:
        await asyncio.sleep(3600)

    @watch.cleanup
    async def cleanup(_op: Any) -> None:
        await asyncio.sleep(3600)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        info = await run.info()
        assert (info.outcome, info.cleaned) == ("timed_out", False)
        assert stage.clock.now() < 5 + 2 + 3

    stage.play(scene)


@pytest.mark.parametrize(
    ("options", "longest_s"), [({}, 1200), ({"outage_budget": "1m"}, 660), ({"outage": "burn"}, 600)]
)
@pytest.mark.parametrize("what", ["status", "start"])
def test_a_remote_that_never_comes_back_keeps_no_run_for_ever(
    stage: WatchStage, options: dict[str, Any], longest_s: float, what: str
) -> None:
    """The budget is paused for as long again as it lasts, or for `outage_budget`; then it runs on."""
    stage.script(**{what: [ConnectionError("down")]})
    watch = stage.whole(every=STEADY, budget=Budget("10m"), breaker=Breaker(3, "1m"), **options)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut) as timed_out:
            await run.result()
        assert longest_s - 10 <= stage.clock.now() <= longest_s + 10
        outage_s = longest_s - 600
        assert ("was unreachable for" in str(timed_out.value)) == (outage_s > 0)
        await stage.ended(run)
        assert (await run.info()).elapsed_s == pytest.approx(600, abs=10)

    stage.play(scene)


def test_the_pause_before_a_start_lengthens_no_budget_after_it(stage: WatchStage) -> None:
    stage.script(start=lambda _: _down_until(stage, 300) or "id-1")
    watch = stage.whole(every=STEADY, budget=Budget("10m"), breaker=Breaker(3, "1m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut):
            await run.result()
        [started_at] = stage.remote.times("start")[-1:]
        assert stage.clock.now() == pytest.approx(started_at + 600, abs=5)

    stage.play(scene)


def test_a_worker_that_was_away_lengthens_no_pause(stage: WatchStage) -> None:
    """The budget is paused for ten minutes of the outage, although no worker looks for a day."""
    stage.script(status=[ConnectionError("down")])
    watch = stage.whole(every=STEADY, budget=Budget("10m"), breaker=Breaker(3, "1m"))

    async def scene() -> None:
        async with stage.working():
            run = await watch.begin({}, id="r")
            await asyncio.sleep(60)
        await asyncio.sleep(86_400)
        async with stage.working():
            with pytest.raises(RunTimedOut):
                await run.result("1m")

    stage.play(scene, working=False)


def _down_until(stage: WatchStage, until: float) -> str:
    if stage.clock.now() < until:
        raise ConnectionError("down")
    return ""


def test_the_row_of_a_run_has_a_deadline_for_the_rescue_to_see(stage: WatchStage) -> None:
    begun = asyncio.Event()

    async def look(_op: Any, _w: Any) -> Done:
        begun.set()
        await asyncio.sleep(5)
        return Done()

    watch = stage.watch(look, timeout="10s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await begun.wait()
        store = await stage.app.store()
        task = (await store.info([run.task_id]))[run.task_id]
        assert task.started_at is not None
        assert task.deadline_at is not None
        assert (task.deadline_at - task.started_at).total_seconds() == 30
        [worker_run] = stage.app._worker._pool._carriers  # type: ignore[union-attr]
        assert worker_run.deadline == pytest.approx(stage.clock.now() + 10, abs=0.1)
        await run.result()

    stage.play(scene)


def test_a_look_that_takes_a_moment_to_clean_up_after_its_timeout_is_not_abandoned(stage: WatchStage) -> None:
    ended: list[str] = []

    async def look(_op: Any, w: Any) -> Any:
        if w.looks > 1:
            return Done()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(OVERDUE_S - 1)
            ended.append("in its own time")

    watch = stage.watch(look, every=STEADY, timeout="1s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        assert ended == ["in its own time"]
        [failed] = [one for one in (await run.info()).log if "error" in one.facts]
        assert failed.facts["error"] == "JobTimeout: took longer than its timeout of 1 s"

    stage.play(scene)
