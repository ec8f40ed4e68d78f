"""At the edges of its budget, a run neither outlives it, nor looks more often than allowed, nor gives up too early."""

import asyncio
from typing import Any

import pytest

from everpoll import Backoff, Breaker, Budget, Rate, RunCanceled, RunTimedOut
from everpoll.watches import Done, Wait
from watches.stage import WatchStage

SLOW = Backoff("1m", factor=1, jitter=0)


class Later(Exception):
    status = 503

    def __init__(self, seconds: int) -> None:
        super().__init__("later")
        self.headers = {"Retry-After": str(seconds)}


def test_one_look_is_one_look(stage: WatchStage) -> None:
    watch = stage.whole(budget=Budget("29m", looks=1))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut, match="budget of 1 looks is spent: 1 looks"):
            await run.result()
        assert stage.remote.count("status") == 1
        assert stage.clock.now() == pytest.approx(2, abs=0.1), "there is nothing to wait for"

    stage.play(scene)


def test_one_look_that_is_done_is_ready(stage: WatchStage) -> None:
    stage.script(status=["complete"])
    watch = stage.whole(budget=Budget("29m", looks=1))

    async def scene() -> None:
        assert await (await watch.begin({}, id="r")).result() == "id-1"

    stage.play(scene)


def test_a_budget_shorter_than_the_first_delay_has_its_one_look_at_its_end(stage: WatchStage) -> None:
    watch = stage.whole(every=SLOW, budget=Budget("10s"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut, match="time budget of 10s is spent"):
            await run.result()
        assert stage.remote.times("status") == [pytest.approx(10, abs=0.1)]
        assert stage.clock.now() == pytest.approx(10, abs=0.2)

    stage.play(scene)


@pytest.mark.parametrize("said", [Later(3600), None])
def test_what_lies_behind_the_deadline_is_not_waited_for(stage: WatchStage, said: Exception | None) -> None:
    """A Retry-After, or a gap between two sightings, longer than the budget: one last look, at its end."""

    async def look(_op: Any, w: Any) -> Any:
        looks.append(stage.clock.now())
        w.confirm("gone", True, gap="1h")
        if said is not None:
            raise said
        return Wait()

    looks: list[float] = []
    watch = stage.watch(look, budget=Budget("10m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut, match="time budget of 10m is spent"):
            await run.result()
        assert looks == [pytest.approx(0, abs=0.1), pytest.approx(600, abs=0.2)]

    stage.play(scene)


def test_a_cancel_waits_no_longer_than_its_budget_whatever_the_remote_asks_for(stage: WatchStage) -> None:
    stage.script(cancel=[Later(86_400)])
    watch = stage.whole(cancel_budget="30s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        await run.cancel()
        with pytest.raises(RunCanceled, match="the cancel failed"):
            await run.result()
        assert stage.clock.now() == pytest.approx(31, abs=0.5)

    stage.play(scene)


def test_looks_after_a_cancel_end_with_its_budget(stage: WatchStage) -> None:
    watch = stage.whole(cancel_budget="100s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        await run.cancel()
        with pytest.raises(RunCanceled, match="did not end within"):
            await run.result()
        assert stage.clock.now() == pytest.approx(101, abs=0.5)

    stage.play(scene)


def test_a_cleanup_waits_no_longer_than_its_budget_whatever_the_remote_asks_for(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"], clean=[Later(86_400)])
    watch = stage.whole(cleanup_budget="30s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        first, last = remote.times("clean")
        assert last - first == pytest.approx(30, abs=0.5)

    stage.play(scene)


def test_a_rate_holds_at_the_deadline_too(stage: WatchStage) -> None:
    """100 runs, 1 look a second, a budget of 20 s: those whose turn comes later have none, and do not ask at once."""
    looks: list[float] = []

    async def look(_op: Any, _w: Any) -> Wait:
        looks.append(stage.clock.now())
        return Wait()

    watch = stage.watch(look, rate=Rate(1, per="1s"), budget=Budget("20s"), every=SLOW)

    async def scene() -> None:
        runs = [await watch.begin({}, id=f"r{number}") for number in range(100)]
        for run in runs:
            with pytest.raises(RunTimedOut):
                await run.result()
        for second in range(30):
            assert sum(second <= at < second + 1 for at in looks) <= 2, second
        assert stage.clock.now() < 26

    stage.play(scene)


def test_a_pause_across_the_deadline_leaves_what_was_left(stage: WatchStage) -> None:
    """Down from 5 min to 2 h, budget 10 min: about 5 min are left after that, and no more."""
    looks: list[float] = []

    async def look(_op: Any, _w: Any) -> Wait:
        looks.append(stage.clock.now())
        if 300 < stage.clock.now() < 7200:
            raise ConnectionError("down")
        return Wait()

    every = Backoff("10s", factor=1, jitter=0)
    watch = stage.watch(look, budget=Budget("10m"), breaker=Breaker(3, "1m"), every=every, outage_budget="3h")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut, match="time budget of 10m is spent: 10m"):
            await run.result()
        elapsed_s = (await run.info()).elapsed_s
        assert elapsed_s == pytest.approx(600, abs=5)
        assert stage.clock.now() < 7200 + 66 + 300
        assert looks[-1] == pytest.approx(stage.clock.now(), abs=1)

    stage.play(scene)


def test_probes_into_an_outage_use_up_no_looks(stage: WatchStage) -> None:
    stage.script(status=lambda _: _down_until(stage, 3600) or "complete")
    watch = stage.whole(budget=Budget("10m", looks=5), breaker=Breaker(2, "1m"), outage_budget="2h")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == "id-1"
        assert stage.remote.count("status") > 50
        assert (await run.info()).looks <= 5

    stage.play(scene)


def _down_until(stage: WatchStage, until: float) -> str:
    if stage.clock.now() < until:
        raise ConnectionError("down")
    return ""


def test_only_failures_in_a_row_are_too_many(stage: WatchStage) -> None:
    bug = KeyError("typo")
    stage.script(status=[bug, bug, bug, bug, "running", bug, bug, bug, bug, "complete"])
    watch = stage.whole()

    async def scene() -> None:
        assert await (await watch.begin({}, id="r")).result() == "id-1"

    stage.play(scene)


def test_an_outage_without_end_can_be_canceled(stage: WatchStage) -> None:
    """While the budget is paused, a cancel ends the run."""
    stage.script(status=[ConnectionError("down")], cancel=[ConnectionError("down")])
    watch = stage.whole(budget=Budget("10m"), breaker=Breaker(3, "1m"), outage_budget="2d")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(86_400)
        info = await run.info()
        assert (info.outcome, info.phase) == (None, "looking")
        await run.cancel()
        with pytest.raises(RunCanceled, match="the cancel failed"):
            await run.result()
        assert stage.clock.now() < 86_400 + 400

    stage.play(scene)


@pytest.mark.parametrize("back_s", [3600.0, -3600.0])
def test_a_store_whose_clock_is_set_back_forgets_no_sighting_and_waits_for_none(
    stage: WatchStage, back_s: float
) -> None:
    """The gap counts from the first look after that; without it the next look would come an hour later."""

    async def look(_op: Any, w: Any) -> Any:
        probes.append(w.due("probe", after="5s", every="15s"))
        return Done(w.looks) if w.confirm("gone", True, gap="15s") else Wait()

    probes: list[bool] = []
    watch = stage.watch(look, budget=Budget("1d"), every=Backoff("10s", factor=1, jitter=0))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(5)
        store: Any = await stage.app.store()
        store._epoch -= back_s
        store._lines._waiting = [(at - back_s, task_id) for at, task_id in store._lines._waiting]
        for row in store._index.live.values():
            row.due_at -= back_s
        await run.result("20m")
        assert stage.clock.now() < 60
        assert probes.count(True) <= 3
        assert (await run.info()).looks <= 4

    stage.play(scene)


def test_thousands_of_remotes_are_remembered_within_bounds(stage: WatchStage) -> None:
    async def look(_op: Any, _w: Any) -> Done:
        return Done()

    watch = stage.watch(look, remote=str, rate=Rate(1, per="1h"), breaker=Breaker(2, "1m"))
    remotes = stage.runtime(watch).remotes
    for number in range(30_000):
        assert remotes.admit(f"tenant {number}", 0.0) is None
    assert len(remotes._remotes) == 10_000
    assert remotes.admit("tenant 29999", 0.0) is not None, "its rate is still known"


@pytest.mark.parametrize("fault", ["timeout", "cancel", "error"])
def test_one_run_that_leaves_a_common_look_harms_no_other(stage: WatchStage, fault: str) -> None:
    calls: list[int] = []
    watch = stage.with_cancel(stage.with_start(stage.watch(timeout="1m")))

    @watch.look_many
    async def many(runs: list[tuple[Any, Any]]) -> list[Any]:
        calls.append(len(runs))
        if len(calls) == 1:
            await asyncio.sleep(90 if fault == "timeout" else 20)
        return [ValueError("mine") if fault == "error" and op == 3 and w.looks == 1 else Done(op) for op, w in runs]

    async def scene() -> None:
        runs = [await watch.begin(number, id=f"r{number}") for number in range(10)]
        if fault == "cancel":
            await asyncio.sleep(10)
            await runs[3].cancel()
        others = [run for number, run in enumerate(runs) if number != 3 or fault != "cancel"]
        values = [await run.result() for run in others]
        assert values == [number for number in range(10) if number != 3 or fault != "cancel"]
        errors = [(await run.info()).errors for run in runs]
        assert errors == {"timeout": [1] * 10, "cancel": [0] * 10, "error": [0, 0, 0, 1] + [0] * 6}[fault]

    stage.play(scene)


def test_a_common_look_that_no_caller_waits_for_is_canceled(stage: WatchStage) -> None:
    hanging = 0
    watch = stage.watch(timeout="10s", budget=Budget("2m"))

    @watch.look_many
    async def many(_runs: list[tuple[Any, Any]]) -> list[Any]:
        nonlocal hanging
        hanging += 1
        try:
            await asyncio.sleep(86_400)
        finally:
            hanging -= 1
        return []

    async def scene() -> None:
        runs = [await watch.begin({}) for _ in range(5)]
        for run in runs:
            with pytest.raises(RunTimedOut):
                await run.result()
        await asyncio.sleep(1)
        assert hanging == 0
        assert "look_many took longer than the timeout of 10 s" in str((await runs[0].info()).log)

    stage.play(scene)
