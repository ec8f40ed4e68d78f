"""Subscribers get the state, then the changes that they missed, then new ones: each exactly once."""

import asyncio
from typing import Any

import pytest

from everpoll import Everpoll
from everpoll.watches import Done, RunEvent, Wait, WatchRun
from watches.stage import WatchStage


async def collected(run: WatchRun, after: int = 0) -> list[RunEvent]:
    return [event async for event in run.events(after)]


def test_the_stored_state_comes_first_then_every_change_in_order_until_the_end(stage: WatchStage) -> None:
    stage.script(status=["queued", "queued", "running", "complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        snapshot, *changes = await collected(run)
        assert snapshot.kind == "snapshot"
        assert [event.seq for event in changes] == list(range(1, len(changes) + 1))
        assert [(event.phase, event.status) for event in changes] == [
            ("intent", None),
            ("looking", None),
            ("looking", "queued"),
            ("looking", "running"),
            ("cleaning", "complete"),
            ("ended", "complete"),
        ]
        assert [event.outcome for event in changes[-2:]] == ["ready", "ready"]

    stage.play(scene)


def test_a_reader_that_comes_late_or_again_misses_nothing(stage: WatchStage) -> None:
    stage.script(status=["queued", "running", "complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        early = asyncio.ensure_future(collected(run))
        await stage.ended(run)
        whole = (await early)[1:]
        assert (await collected(run))[1:] == whole, "after the end, from the beginning"
        for after in range(len(whole) + 1):
            snapshot, *missed = await collected(run, after)
            assert (snapshot.phase, snapshot.outcome) == ("ended", "ready")
            assert missed == whole[after:]

    stage.play(scene)


def test_a_subscriber_that_goes_away_leaves_nothing_behind(stage: WatchStage) -> None:
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        async for event in run.events():
            if event.kind == "change":
                break
        await asyncio.sleep(10)
        waiters = stage.app.watches._waiters
        assert waiters is not None
        assert len(waiters) == 0

    stage.play(scene)


def test_another_process_hears_of_it_within_a_second_or_two(stage: WatchStage) -> None:
    stage.script(status=lambda _: "complete" if stage.clock.now() > 100 else "running")
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        elsewhere = Everpoll(await stage.app.store(), clock=stage.clock)
        same = await elsewhere.watches.run("query", "r")
        assert await same.result() == "id-1"
        heard_at = stage.clock.now()
        decided = [one for one in (await run.info()).log if one.rule == "ready"]
        assert heard_at - (decided[0].at - stage.clock.wall() + stage.clock.now()) < 2
        await elsewhere.watches.close()

    stage.play(scene)


def test_events_are_written_on_change_only(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        w.progress(f"{w.looks // 50 * 50} looks")
        return Done() if w.looks == 110 else Wait()

    watch = stage.watch(look, every="1s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        changes = (await collected(run))[1:]
        assert [event.progress for event in changes] == [None, "0 looks", "50 looks", "100 looks", "100 looks"]

    stage.play(scene)


@pytest.mark.parametrize("after", [1_000, 10**30])
def test_a_number_that_the_run_has_not_come_to_loses_none_of_its_changes(stage: WatchStage, after: int) -> None:
    stage.script(status=["running", "complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        events = [event async for event in run.events(after=after)]
        assert events[-1].phase == "ended"

    stage.play(scene)
