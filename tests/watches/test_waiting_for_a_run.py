"""Who waits for a run: over outages of the store, until the app is closed, and without leaving anything behind."""

import asyncio
from typing import Any

import pytest

from everpoll import Budget, Everpoll
from everpoll.errors import BadInput, NotRunning, StoreUnavailable, TaskNotFound
from everpoll.stores.contract import NewEvent, NewTask
from everpoll.watches import Done, RunEvent, Wait, WatchRun
from everpoll.watches.feed import Feed
from watches.stage import WatchStage

READS = ("info", "task_events", "events")


class Outage:
    """Reading fails while it lasts."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._real = {name: getattr(store, name) for name in READS}

    def begin(self) -> None:
        async def away(*_: Any) -> Any:
            raise StoreUnavailable("away")

        for name in READS:
            setattr(self._store, name, away)

    def end(self) -> None:
        for name, real in self._real.items():
            setattr(self._store, name, real)


async def collected(run: WatchRun, after: int = 0) -> list[RunEvent]:
    return [event async for event in run.events(after)]


def test_invariant_10_an_outage_of_the_store_is_waited_out(stage: WatchStage) -> None:
    stage.script(status=lambda _: "complete" if stage.clock.now() > 60 else f"at {stage.clock.now() // 10:.0f}")
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        result = asyncio.ensure_future(run.result())
        events = asyncio.ensure_future(collected(run))
        await asyncio.sleep(5)
        outage = Outage(await stage.app.store())
        outage.begin()
        await asyncio.sleep(300)
        with pytest.raises(TimeoutError, match="the store cannot be reached"):
            await run.result("10s")
        assert not result.done()
        assert not events.done()
        outage.end()
        assert await result == "id-1"
        assert [event.seq for event in (await events)[1:]] == list(range(1, (await run.info()).seq + 1))
        assert stage.clock.now() < 330

    stage.play(scene)


@pytest.mark.parametrize("is_away", [False, True])
def test_whoever_waits_when_the_app_is_closed_is_told_and_opens_nothing(stage: WatchStage, is_away: bool) -> None:
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        waiting = [asyncio.ensure_future(run.result()), asyncio.ensure_future(collected(run))]
        await asyncio.sleep(5)
        if is_away:
            Outage(await stage.app.store()).begin()
            await asyncio.sleep(7)
        await stage.app.close()
        for one in waiting:
            with pytest.raises(NotRunning, match="the app was closed"):
                await one
        assert stage.app._opened_on is None

    stage.play(scene)


def test_what_was_pruned_is_said_to_be_gone_and_its_id_is_free_again(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        await asyncio.sleep(10)
        assert await (await stage.app.store()).prune(5) == 1
        for asked in (run.info(), run.result(), run.cancel(), collected(run), stage.app.watches.run("query", "r")):
            with pytest.raises(TaskNotFound, match="history was dropped"):
                await asked
        again = await watch.begin({}, id="r")
        assert (again.is_new, again.task_id != run.task_id) == (True, True)
        await stage.ended(again)
        assert {call.args for call in remote.calls if call.name == "start"} == {("query:r",)}, "with the same key"

    stage.play(scene)


def test_events_of_which_the_oldest_were_dropped_end_all_the_same(stage: WatchStage) -> None:
    stage.script(status=["queued", "running", "complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        store: Any = await stage.app.store()
        store._feed.drop(stage.clock.wall() + 1)
        async with asyncio.timeout(60):
            [snapshot] = await collected(run)
        assert (snapshot.phase, snapshot.outcome) == ("ended", "ready")

    stage.play(scene)


def test_whoever_asks_from_behind_the_end_is_sent_the_state_and_no_more(stage: WatchStage) -> None:
    stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        assert [event.kind for event in await collected(run, after=10_000)] == ["snapshot"]
        for bad in (-1, "3", True):
            with pytest.raises(BadInput, match="after="):
                await collected(run, bad)  # type: ignore[arg-type]

    stage.play(scene)


def test_a_thousand_who_waited_and_left_leave_nothing_behind(stage: WatchStage) -> None:
    watch = stage.watch(every="1s")

    async def scene() -> None:
        runs = [await watch.begin({}, id=f"r{number}") for number in range(10)]
        waiting = [asyncio.ensure_future(run.result("20s")) for run in runs for _ in range(50)]
        following = [asyncio.ensure_future(collected(run)) for run in runs for _ in range(50)]
        await asyncio.sleep(10)
        for one in following:
            one.cancel()
        await asyncio.gather(*following, *waiting, return_exceptions=True)
        feed = stage.app.watches._feed
        assert feed is not None
        assert not feed._waiters
        await asyncio.sleep(5)
        assert feed._looker is not None
        assert feed._looker.done(), "nobody looks while nobody waits"

    stage.play(scene)


def test_a_result_that_is_asked_for_at_once_is_there_at_once(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        return Done(7) if w.looks == 2 else Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(TimeoutError, match="no outcome within 0s: it is looking"):
            await run.result(0)
        await run.result()
        assert await run.result(0) == 7

    stage.play(scene)


async def test_waiting_on_a_real_store_that_is_closed_leaves_no_thread_open(tmp_path: Any) -> None:
    app = Everpoll(f"sqlite:///{tmp_path / 'closed.db'}")

    @app.watch(every="1h", budget=Budget("1d"))
    async def query(_op: Any) -> None: ...

    async with app:
        run = await query.begin({})
        waiting = asyncio.ensure_future(run.result())
        await asyncio.sleep(0.05)
    with pytest.raises(NotRunning):
        await waiting
    assert app._opened_on is None


def test_what_happened_while_the_feed_found_its_place_is_told(stage: WatchStage) -> None:
    async def scene() -> None:
        feed = Feed(await stage.app.store())
        async with feed.subscribe(1) as changes:
            await changes.wait()
            assert stage.clock.now() < 1, "not only by the waiter's own look"

    stage.play(scene, working=False)


def test_whoever_comes_new_is_told_as_soon_as_the_first_was(stage: WatchStage) -> None:
    async def scene() -> None:
        store = await stage.app.store()
        feed = Feed(store)
        async with feed.subscribe(1), feed.subscribe(2):
            await asyncio.sleep(60)
            async with feed.subscribe(3) as changes:
                await asyncio.sleep(0.07)
                began = stage.clock.now()
                tasks = [NewTask(name="query", kind="watch", events=(NewEvent(1, "{}"),)) for _ in range(3)]
                assert [one.id for one in await store.enqueue(tasks)] == [1, 2, 3]
                await changes.wait()
                assert stage.clock.now() - began < 0.3

    stage.play(scene, working=False)
