"""A paused run is not looked at and spends no budget; a cancel still reaches the remote; resumed, it goes on."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from everpoll import Backoff, Budget, RunTimedOut, WrongState
from everpoll.watches import Wait, WatchRun
from everpoll.watches.why import why
from watches.stage import WatchStage

MINUTELY = Backoff("1m", factor=1, jitter=0)


async def actions(stage: WatchStage, run: WatchRun) -> list[dict[str, Any]]:
    return [one.body for one in await (await stage.app.store()).actions_of(run.task_id)]


def test_a_paused_run_is_not_looked_at_and_its_budget_stands_still(stage: WatchStage) -> None:
    watch = stage.watch(every=MINUTELY, budget=Budget("10m"))

    async def scene() -> None:
        run = await watch.begin({"file": 1}, id="r")
        await asyncio.sleep(90)
        looks = stage.remote.count("status")
        await run.pause("the remote is moved", by="ada")
        await asyncio.sleep(86_400)
        assert stage.remote.count("status") == looks
        info = await run.info()
        assert (info.phase, info.next_look_at, info.deadline_at, info.op) == ("paused", None, None, {"file": 1})
        assert info.paused is not None
        assert (info.paused.reason, info.paused.by) == ("the remote is moved", "ada")
        assert stage.clock.wall() - info.paused.at.timestamp() == pytest.approx(86_400, abs=5)
        assert await run.resume(by="ada") is True
        await asyncio.sleep(1)
        assert stage.remote.count("status") == looks + 1, "its next look is due at once"
        info = await run.info()
        assert (info.phase, info.paused) == ("looking", None)
        before = stage.clock.now()
        with pytest.raises(RunTimedOut, match="time budget of 10m is spent"):
            await run.result()
        assert stage.clock.now() - before == pytest.approx(600 - 91, abs=6)
        assert [(one["what"], one.get("by"), one.get("why")) for one in await actions(stage, run)] == [
            ("pause", "ada", "the remote is moved"),
            ("resume", "ada", None),
        ]

    stage.play(scene)


def test_the_answer_of_a_look_that_is_under_way_counts(stage: WatchStage) -> None:
    looking, go = asyncio.Event(), asyncio.Event()
    looks: list[float] = []

    async def look(_op: Any) -> Wait:
        looks.append(stage.clock.now())
        looking.set()
        await go.wait()
        return Wait(status="copying")

    watch = stage.watch(look, every=MINUTELY, budget=Budget("10h"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await looking.wait()
        await run.pause()
        go.set()
        await asyncio.sleep(600)
        assert len(looks) == 1
        assert (await run.info()).status == "copying"

    stage.play(scene)


def test_a_paused_run_is_canceled_at_the_remote(stage: WatchStage) -> None:
    stage.script(status=["running", "error"])
    watch = stage.whole(every=MINUTELY, budget=Budget("10m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        await run.pause()
        await asyncio.sleep(7200)
        assert await run.cancel("not needed")
        await asyncio.sleep(60)
        assert stage.remote.count("cancel") == 1
        assert (await run.info()).outcome == "canceled"

    stage.play(scene)


def test_a_run_that_is_paused_before_its_start_is_not_started(stage: WatchStage) -> None:
    watch = stage.whole(every=MINUTELY, budget=Budget("10m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r", delay="1m")
        await run.pause()
        await asyncio.sleep(7200)
        assert stage.remote.count("start") == 0
        await run.resume()
        await asyncio.sleep(1)
        assert stage.remote.count("start") == 1

    stage.play(scene)


def test_an_extension_keeps_the_pause_and_a_second_pause_replaces_the_reason(stage: WatchStage) -> None:
    watch = stage.watch(every=MINUTELY, budget=Budget("10m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        await run.pause("one")
        await asyncio.sleep(60)
        await run.extend("5m")
        await run.pause("two", by="bob")
        await asyncio.sleep(60)
        info = await run.info()
        assert info.paused is not None
        assert (info.paused.reason, info.paused.by, info.budget_s) == ("two", "bob", 900.0)
        assert stage.clock.wall() - info.paused.at.timestamp() == pytest.approx(120, abs=5), "since the first of them"
        assert stage.remote.count("status") == 1

    stage.play(scene)


def test_why_says_which_actor_paused_it_and_what_to_do(stage: WatchStage) -> None:
    watch = stage.watch(every=MINUTELY, budget=Budget("10m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        await run.pause("the remote is moved", by="ada")
        await asyncio.sleep(120)
        store = await stage.app.store()
        task = (await store.info([run.task_id]))[run.task_id]
        answer = why(task, (), (), (), datetime.fromtimestamp(stage.clock.wall(), UTC))
        assert answer.verdict.startswith("It is paused by ada, for 2m: the remote is moved. No worker looks at it")
        assert answer.advice is not None
        assert "runs resume" in answer.advice

    stage.play(scene)


def test_what_cannot_be_paused_is_refused(stage: WatchStage) -> None:
    stage.script(status=["complete"])
    watch = stage.watch(every=MINUTELY)

    async def scene() -> None:
        run = await watch.begin({}, id="r", delay="1h")
        assert await run.resume() is False
        await run.pause()
        with pytest.raises(WrongState, match="query:r is paused: resume it first"):
            await run.look_now()
        await run.resume()
        await run.result()
        with pytest.raises(WrongState, match="query:r cannot be paused any more: it has its outcome, ready"):
            await run.pause()

    stage.play(scene)
