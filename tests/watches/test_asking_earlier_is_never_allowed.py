"""Retry-After is a floor wherever it is said: by the status call, a secondary one, a check, or a cleanup.

And what a start may have left at the remote before it failed for good is cleaned up.
"""

from typing import Any

from everpoll import Backoff
from everpoll.watches import Done, Verify, Wait
from watches.stage import WatchStage


class TooMany(Exception):
    """As any client raises it."""

    status = 429
    headers = {"Retry-After": "100"}  # noqa: RUF012 - as clients have it


def test_what_a_secondary_call_says_delays_the_next_look(stage: WatchStage) -> None:
    remote = stage.script(is_running=[TooMany("slowly"), False])

    async def look(_op: Any, w: Any) -> Done | Wait:
        running = await w.attempt(stage.remote.is_running)
        return Wait() if running is None else Done("asked again")

    watch = stage.watch(look)
    timeline = stage.timeline(watch)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == "asked again"
        first, second = remote.times("is_running")
        assert 100 <= second - first <= 110.1
        assert timeline.rules("r") == ["retry-after", "ready"]

    stage.play(scene)


def test_what_a_check_says_delays_the_next_try(stage: WatchStage) -> None:
    remote = stage.script(rowset=[TooMany("slowly"), True])

    async def look(_op: Any, w: Any) -> Verify:
        verify: Verify = w.verify("rowset")
        return verify

    watch = stage.watch(look)

    @watch.verify("rowset", tries=6, every=Backoff("1.5s", cap="8s", jitter=0))
    async def rowset(_op: Any) -> Any:
        return await stage.remote.rowset()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        first, second = remote.times("rowset")
        assert 100 <= second - first <= 110.1

    stage.play(scene)


def test_a_check_waits_where_a_secondary_call_of_the_same_look_was_told_to(stage: WatchStage) -> None:
    remote = stage.script(rowset=[TooMany("slowly"), True, True])

    async def look(_op: Any, w: Any) -> Verify:
        await w.attempt(stage.remote.rowset)
        verify: Verify = w.verify("rowset")
        return verify

    watch = stage.watch(look)

    @watch.verify("rowset", tries=1)
    async def rowset(_op: Any) -> Any:
        return await stage.remote.rowset()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        first, second, third = remote.times("rowset")
        assert 100 <= second - first <= 110.1
        assert second == third
        assert (await run.info()).counters["verify:rowset"] == 1

    stage.play(scene)


def test_what_a_cleanup_says_delays_its_next_try(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"], clean=[TooMany("slowly"), None])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        first, second = remote.times("clean")
        assert 100 <= second - first <= 120.1

    stage.play(scene)


def test_what_a_start_that_failed_for_good_may_have_left_is_cleaned_up(stage: WatchStage) -> None:
    class Refused(Exception):
        status = 400

    remote = stage.script(start=[Refused("bad request")])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        info = await run.info()
        assert (info.outcome, info.cleaned) == ("failed", True)
        assert len(remote.times("clean")) == 1

    stage.play(scene)
