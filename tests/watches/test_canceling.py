"""A cancel asks the remote, waits for the end and cleans up; a cleanup always comes after the outcome."""

import asyncio
from typing import Any

import pytest

from everpoll import RunCanceled, RunFailed
from everpoll.watches import Done, Wait
from watches.stage import WatchStage


def test_a_cancel_is_seen_at_once_told_to_the_remote_waited_for_and_cleaned_up(stage: WatchStage) -> None:
    """In the document it waits for the next look, and the remote never hears of it."""
    remote = stage.script(status=["running"] * 5 + ["canceling", "canceled"], clean=[None])

    async def look(_op: Any, w: Any) -> Any:
        status = await remote.status()
        return Done() if status == "canceled" else Wait(status=status)

    watch = stage.with_cleanup(stage.with_cancel(stage.with_start(stage.watch(look))))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(70)
        asked_at = stage.clock.now()
        assert await run.cancel("not needed any more")
        with pytest.raises(RunCanceled, match="canceled: not needed any more; the remote has ended"):
            await run.result()
        assert remote.times("cancel") == [pytest.approx(asked_at, abs=0.1)]
        await stage.ended(run)
        assert remote.count("clean") == 1
        assert remote.count("cancel") == 1
        assert await run.cancel() is False

    stage.play(scene)


def test_before_the_start_no_remote_is_told(stage: WatchStage) -> None:
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r", delay="1h")
        await run.cancel()
        with pytest.raises(RunCanceled, match="it was not started yet"):
            await run.result()
        await stage.ended(run)
        assert stage.remote.calls == []

    stage.play(scene)


def test_a_look_that_is_under_way_is_broken_off(stage: WatchStage) -> None:
    begun = asyncio.Event()

    async def look(_op: Any, w: Any) -> Wait:
        if not w.is_canceling:
            begun.set()
            await asyncio.sleep(50)
        return Wait()

    watch = stage.with_cleanup(stage.with_start(stage.watch(look)))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await begun.wait()
        at = stage.clock.now()
        await run.cancel()
        # Its worker hears of it at once, and asks at its next beat.
        with pytest.raises(RunCanceled):
            await run.result()
        assert stage.clock.now() < at + 50

    stage.play(scene)


def test_a_start_that_is_under_way_is_not_broken_off_so_that_the_remote_can_be_told(stage: WatchStage) -> None:
    begun = asyncio.Event()
    remote = stage.script(status=["complete"])
    watch = stage.with_cancel(stage.watch())

    @watch.start
    async def start(_op: Any, key: str) -> Any:
        begun.set()
        await asyncio.sleep(20)
        return await remote.start(key)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await begun.wait()
        await run.cancel()
        with pytest.raises(RunCanceled, match="the remote has ended"):
            await run.result()
        assert [call.args for call in remote.calls if call.name == "cancel"] == [("id-1", "query:r")]

    stage.play(scene)


def test_a_remote_that_never_confirms_is_waited_for_no_longer_than_the_cancel_budget(stage: WatchStage) -> None:
    watch = stage.whole(cancel_budget="2m")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(10)
        await run.cancel()
        with pytest.raises(RunCanceled, match="did not end within 2m"):
            await run.result()
        assert 130 <= stage.clock.now() <= 200

    stage.play(scene)


def test_a_cancel_that_fails_in_passing_is_repeated(stage: WatchStage) -> None:
    remote = stage.script(cancel=[ConnectionError("gone"), None], status=["running", "running", "complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(3)
        await run.cancel()
        with pytest.raises(RunCanceled):
            await run.result()
        assert remote.count("cancel") == 2
        assert {call.args for call in remote.calls if call.name == "cancel"} == {("id-1", "query:r")}

    stage.play(scene)


@pytest.mark.parametrize(
    ("status", "outcome"), [("complete", "ready"), ("error", "failed"), ("running", "timed_out"), (None, "canceled")]
)
def test_cleanup_happens_on_every_outcome_once_and_after_it(
    stage: WatchStage, status: str | None, outcome: str
) -> None:
    remote = stage.script(status=[status or "running"])
    watch = stage.with_cleanup(stage.with_start(stage.watch()))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        if status is None:
            await run.cancel()
        await stage.ended(run)
        [call] = [call for call in remote.calls if call.name == "clean"]
        assert call.args == ("id-1", "query:r", outcome)
        info = await run.info()
        assert (info.outcome, info.cleaned) == (outcome, True)

    stage.play(scene)


def test_what_was_started_elsewhere_is_cleaned_up_even_after_a_single_look(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"])
    watch = stage.with_cleanup(stage.watch())

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        [call] = [call for call in remote.calls if call.name == "clean"]
        assert call.args == (None, "query:r", "ready")
        assert (await run.info()).cleaned is True

    stage.play(scene)


def test_a_cleanup_that_fails_changes_no_outcome_and_is_tried_again(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"], clean=[ConnectionError("gone")] * 4 + [None])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == "id-1"
        await stage.ended(run)
        assert remote.count("clean") == 5
        info = await run.info()
        assert (info.outcome, info.cleaned) == ("ready", True)

    stage.play(scene)


def test_what_leaked_is_swept(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"], clean=[ConnectionError("gone")])
    watch = stage.whole(cleanup_budget="10m")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == "id-1"
        await stage.ended(run)
        assert (await run.info()).cleaned is False
        remote._answers["clean"] = [None]
        await asyncio.sleep(2 * 3600)  # the sweeper comes about once an hour
        info = await run.info()
        assert (info.outcome, info.cleaned, info.phase) == ("ready", True, "ended")
        assert await run.result() == "id-1"

    stage.play(scene)


def test_never_before_the_outcome_is_committed(stage: WatchStage) -> None:
    seen: list[str | None] = []
    remote = stage.script(status=["running", "complete"])
    watch = stage.with_start(stage.watch())

    @watch.cleanup
    async def cleanup(_op: Any) -> None:
        run = await stage.app.watches.run("query", "r")
        seen.append((await run.info()).outcome)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        assert seen == ["ready"]
        assert remote.count("status") == 2

    stage.play(scene)


def test_a_look_after_the_cancel_sees_that_it_is_canceling(stage: WatchStage) -> None:
    seen: list[bool] = []

    async def look(_op: Any, w: Any) -> Any:
        seen.append(w.is_canceling)
        return Done("partial") if w.is_canceling else Wait()

    watch = stage.with_cancel(stage.with_start(stage.watch(look)))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(3)
        await run.cancel()
        with pytest.raises(RunCanceled):
            await run.result()
        assert seen == [False, True]
        assert (await run.info()).value == "partial"

    stage.play(scene)


def test_a_failed_run_may_not_be_canceled_any_more(stage: WatchStage) -> None:
    stage.script(status=["error"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed):
            await run.result()
        assert await run.cancel() is False
        assert await stage.outcome(run) == "failed"

    stage.play(scene)
