"""What proves the end of an operation: sightings far enough apart, checks that are repeated, gates."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from everpoll import Backoff, BadInput, RunFailed
from everpoll.watches import Done, Fail, Wait
from watches.stage import WatchStage


def confirming(stage: WatchStage) -> Any:
    """Ready once "not running" was seen twice, 15 s apart."""

    async def look(_op: Any, w: Any) -> Done | Wait:
        running = await w.attempt(stage.remote.is_running)
        seen = None if running is None else not running
        return Done("confirmed") if w.confirm("not_running", seen, times=2, gap="15s") else Wait()

    return stage.watch(look)


def test_not_running_must_be_seen_twice_at_least_15_s_apart(stage: WatchStage) -> None:
    remote = stage.script(is_running=[False])
    watch = confirming(stage)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == "confirmed"
        assert [round(at, 1) for at in remote.times("is_running")] == [0.0, 15.0]

    stage.play(scene)


def test_a_pending_confirmation_schedules_the_next_look_at_first_seen_plus_gap(stage: WatchStage) -> None:
    """The document's backoff ignores the gap, so that a confirmation takes 30 s."""
    remote = stage.script(is_running=[True, True, True, True, True, False])
    watch = confirming(stage)
    timeline = stage.timeline(watch)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        times = remote.times("is_running")
        assert times[-1] - times[-2] == pytest.approx(15, abs=0.05)
        assert timeline.rules("r")[-2:] == ["hint", "ready"]
        assert "sighting 2 of 2 counts 15s after the last" in timeline.of("r")[-2].why

    stage.play(scene)


def test_a_running_in_between_starts_over(stage: WatchStage) -> None:
    """In the document a confirmation survives a contrary observation."""
    remote = stage.script(is_running=[False, True, False, False])
    watch = confirming(stage)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        assert remote.count("is_running") == 4

    stage.play(scene)


def test_unknown_neither_confirms_nor_resets(stage: WatchStage) -> None:
    remote = stage.script(is_running=[False, ConnectionError("gone"), False])
    watch = confirming(stage)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        assert remote.count("is_running") == 3

    stage.play(scene)


def test_readiness_is_tried_6_times_from_1500_ms_up_to_8_s(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"], rows=[0])
    watch = verifying(stage)
    timeline = stage.timeline(watch)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed, match="rowset could not be verified in 6 tries"):
            await run.result()
        assert timeline.waits("r") == [1.5, 3, 6, 8, 8]
        assert remote.count("rows") == 6

    stage.play(scene)


def test_a_check_that_passes_makes_the_run_ready_with_what_it_returns(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"], rows=[0, 0, 3])
    watch = verifying(stage)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == 3
        assert remote.count("rows") == 3

    stage.play(scene)


def test_a_check_that_raises_has_not_passed(stage: WatchStage) -> None:
    stage.script(status=["complete"], rows=[ConnectionError("gone"), 3])
    watch = verifying(stage)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == 3

    stage.play(scene)


def test_an_error_during_the_checks_fails_at_once(stage: WatchStage) -> None:
    remote = stage.script(status=["complete", "error"], rows=[0])

    async def look(_op: Any, w: Any) -> Any:
        if await remote.status() == "error":
            return Fail("ErrorMsg")
        return w.verify("rowset")

    watch = stage.watch(look)

    @watch.verify("rowset")
    async def rowset(_op: Any) -> Any:
        return await remote.rows()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed, match="ErrorMsg"):
            await run.result()
        assert remote.count("rows") == 1

    stage.play(scene)


def test_exhausted_may_mean_ready_where_the_user_says_so(stage: WatchStage) -> None:
    stage.script(status=["complete"], rows=[0])
    watch = verifying(stage, exhausted="ready")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() is None

    stage.play(scene)


def test_a_check_that_is_not_registered_is_named(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        return w.verify("rowsets")

    watch = stage.watch(look)

    @watch.verify("rowset")
    async def rowset(_op: Any) -> bool:
        return True

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed, match=r"no check has that name.*known checks: rowset"):
            await run.result()

    stage.play(scene)
    with pytest.raises(BadInput, match="is registered already"):
        watch.verify("rowset")


def test_a_gate_opens_not_before_5_s_and_at_most_every_15_s(stage: WatchStage) -> None:
    probes: list[float] = []

    async def look(_op: Any, w: Any) -> Wait:
        if w.due("probe", after="5s", every="15s"):
            probes.append(w.elapsed)
        return Wait()

    watch = stage.watch(look, every=Backoff("1s", factor=1, jitter=0))

    async def scene() -> None:
        await watch.begin({}, id="r")
        await asyncio.sleep(60)
        assert probes[0] == pytest.approx(5, abs=1.01)
        gaps = [later - earlier for earlier, later in pairwise(probes)]
        assert all(15 <= gap < 16.1 for gap in gaps)
        assert len(gaps) >= 2

    stage.play(scene)


def test_a_gate_by_run_time_opens_later_without_a_signal(stage: WatchStage) -> None:
    """Completion date seen: checks after 5 s. Nothing seen: after 3 min."""
    checks: list[float] = []

    async def look(op: Any, w: Any) -> Wait:
        if w.due("is_running", after="5s" if op["dated"] else "3m"):
            checks.append(w.elapsed)
        return Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        await watch.begin({"dated": False}, id="slow")
        await asyncio.sleep(170)
        assert checks == []
        await asyncio.sleep(40)
        assert 180 <= checks[0] < 211

    stage.play(scene)


def test_a_look_that_crashes_has_changed_no_fact(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        w.memory["touched"] = w.memory.get("touched", 0) + 1
        is_seen = w.confirm("seen", True, times=2)
        is_due = w.due("gate", every="1h")
        if w.looks < 3:
            raise ConnectionError("gone")
        return Done([w.memory["touched"], is_seen, is_due])

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == [1, False, True]

    stage.play(scene)


def verifying(stage: WatchStage, **options: Any) -> Any:
    async def look(_op: Any, w: Any) -> Any:
        return w.verify("rowset") if await stage.remote.status() == "complete" else Wait()

    watch = stage.watch(look)

    @watch.verify("rowset", tries=6, every=Backoff("1.5s", cap="8s", jitter=0), **options)
    async def rowset(_op: Any) -> Any:
        return await stage.remote.rows()

    return watch
