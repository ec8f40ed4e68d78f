"""Callers that wait for a run wait through outages of the store, until the app is closed, and leave nothing behind."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from everpoll import Backoff, Budget, Everpoll, RunCanceled
from everpoll.engine.waiters import QUERY_LIMIT
from everpoll.errors import BadInput, NotRunning, StoreUnavailable, TaskNotFound
from everpoll.stores import limits
from everpoll.stores.contract import NewEvent, NewTask
from everpoll.watches import Done, RunEvent, Wait, WatchRun
from everpoll.watches.waiting import FEW, RunWaiters, WaitRequest
from watches.stage import WatchStage

READS = ("info", "ended", "events_of", "events")


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
def test_a_caller_that_waits_when_the_app_is_closed_is_told_and_opens_nothing(stage: WatchStage, is_away: bool) -> None:
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
        assert not stage.app._opened.is_open

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


def test_a_reader_that_asks_from_behind_the_end_is_sent_the_state_and_no_more(stage: WatchStage) -> None:
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
        waiters = stage.app.watches._waiters
        assert waiters is not None
        assert len(waiters) == 0
        await asyncio.sleep(5)
        assert waiters._querying is not None
        assert waiters._querying.done(), "no look while no caller waits"

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
    assert not app._opened.is_open


def one_task(store: Any, seq: int = 1) -> NewTask:
    return NewTask(name="query", kind="watch", key=f"query:{seq}", events=(NewEvent(1, '{"phase":"looking"}'),))


def test_what_happened_while_the_feed_found_its_place_is_told(stage: WatchStage) -> None:
    """The position of the feed is asked for before the first read: what comes in between is in one of the two."""

    async def scene() -> None:
        store: Any = await stage.app.store()
        [task] = await store.enqueue([one_task(store)])
        real = store.ended

        async def ended(task_ids: Any) -> Any:
            found = await real(task_ids)
            store.ended = real
            store._feed.add(store._index.live[task.id], stage.clock.wall(), [NewEvent(2, '{"phase":"looking"}')])
            return found

        waiters = RunWaiters(store)
        store.ended = ended
        _, events = await waiters.ask(task.id, WaitRequest(after=1))
        assert [one.seq for one in events] == [2]
        assert stage.clock.now() < 0.3
        await waiters.close()

    stage.play(scene, working=False)


def test_a_caller_that_comes_late_is_told_as_soon_as_the_first_was(stage: WatchStage) -> None:
    """After a minute without news looks are a second apart; a new caller brings quick ones back."""

    async def scene() -> None:
        store: Any = await stage.app.store()
        ids = [one.id for one in await store.enqueue([one_task(store, number) for number in range(3)])]
        waiters = RunWaiters(store)
        early = [asyncio.ensure_future(waiters.ask(task_id, WaitRequest(after=1))) for task_id in ids[:2]]
        await asyncio.sleep(60)
        late = asyncio.ensure_future(waiters.ask(ids[2], WaitRequest(after=1)))
        await asyncio.sleep(0.07)
        began = stage.clock.now()
        store._feed.add(store._index.live[ids[2]], stage.clock.wall(), [NewEvent(2, '{"phase":"looking"}')])
        await late
        assert stage.clock.now() - began < 0.3
        for one in early:
            one.cancel()
        await waiters.close()

    stage.play(scene, working=False)


def counted(store: Any, *names: str) -> Counter[str]:
    """From now on, the calls of these operations of a store."""
    calls: Counter[str] = Counter()

    def counting(name: str) -> Any:
        real = getattr(store, name)

        async def call(*args: Any) -> Any:
            calls[name] += 1
            await asyncio.sleep(0.001)  # as a database takes: calls meanwhile share the next statement
            return await real(*args)

        return call

    for name in names:
        setattr(store, name, counting(name))
    return calls


def test_callers_cost_no_statement_each(stage: WatchStage) -> None:
    """2,000 callers wait for 1,000 runs: a look for all of them, and what is settled here is heard of at once."""
    watch = stage.watch(lambda _op, w: _done_at(stage, w, 60), every=Backoff("20s", factor=1, jitter=0))

    async def scene() -> None:
        runs = await asyncio.gather(*(watch.begin({}, id=f"r{number}") for number in range(1_000)))
        await asyncio.sleep(5)
        calls = counted(await stage.app.store(), *READS, "task_events")
        results = [asyncio.ensure_future(run.result()) for run in runs]
        followers = [asyncio.ensure_future(collected(run)) for run in runs]
        await asyncio.sleep(30)
        assert calls["events"] < 1_000, "the feed, for all"
        assert calls["info"] < 60
        assert calls["ended"] < 60
        assert calls["task_events"] == 0
        await asyncio.gather(*results, *followers)
        # Settlements come in batches, and each is read in one go; not one statement for each of 2,000 callers.
        assert calls["info"] + calls["ended"] + calls["events_of"] < 500

    stage.play(scene)


def test_a_look_at_many_large_runs_reads_no_more_than_fits(stage: WatchStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty callers wait for runs of a third of an answer each: few are read at a time, and each caller hears."""
    monkeypatch.setattr(limits, "STATEMENT_BYTES", 30_000)
    watch = stage.watch(lambda _op, w: _done_at(stage, w, 60), every="20s")

    async def scene() -> None:
        runs = [await watch.begin({"text": "x" * 9_000}, id=f"r{number}") for number in range(20)]
        store: Any = await stage.app.store()
        read: list[int] = []
        real = store.info

        async def info(task_ids: Any) -> Any:
            read.append(len(task_ids))
            return await real(task_ids)

        store.info = info
        results = [asyncio.ensure_future(run.result()) for run in runs]
        followers = [asyncio.ensure_future(collected(run)) for run in runs]
        await asyncio.gather(*results, *followers)
        assert max(read) <= FEW
        assert sum(read) >= 20

    stage.play(scene)


def test_a_result_is_heard_of_as_soon_as_it_is_settled_whatever_the_number_of_callers(stage: WatchStage) -> None:
    watch = stage.watch(lambda _op, w: _done_at(stage, w, 60), every="1h")
    quick = stage.watch(lambda _op, w: _done_at(stage, w, 60), every="1s", name="quick")

    async def scene() -> None:
        runs = [await watch.begin({}, id=f"r{number}") for number in range(500)]
        waiting = [asyncio.ensure_future(run.result()) for run in runs]
        probe = await quick.begin({}, id="probe")
        await probe.result()
        [decided] = [one.at for one in (await probe.info()).log if one.rule == "ready"]
        assert stage.clock.wall() - decided <= 0.1
        for one in waiting:
            one.cancel()

    stage.play(scene)


def test_cancels_at_the_same_time_share_statements_and_each_is_answered(stage: WatchStage) -> None:
    watch = stage.whole(every="1h")

    async def scene() -> None:
        runs = await asyncio.gather(*(watch.begin({}, id=f"r{number}") for number in range(300)))
        await asyncio.sleep(1)
        ended = runs[7]
        await ended.cancel()
        await stage.ended(ended)
        calls = counted(await stage.app.store(), "info", "cancel_many")
        answers = await asyncio.gather(*(run.cancel("all of them") for run in runs))
        assert [answer for answer in answers if not answer] == [False], "one had its outcome already"
        assert answers[7] is False
        assert calls["info"] + calls["cancel_many"] < 10
        for run in runs:
            with pytest.raises(RunCanceled):
                await run.result()
        info = await runs[3].info()
        assert info.reason is not None
        assert "all of them" in info.reason

    stage.play(scene)


def test_a_reader_that_reads_on_in_events_after_the_app_was_closed_opens_no_store(stage: WatchStage) -> None:
    """The caller holds an iteration in the middle, and asks for the next event only after the close."""
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        events = run.events()
        assert (await anext(events)).kind == "snapshot"
        await stage.app.close()
        with pytest.raises(NotRunning, match="the app was closed"):
            _ = [event async for event in events]
        assert not stage.app._opened.is_open

    stage.play(scene)


def test_an_error_of_the_store_that_is_no_outage_reaches_the_callers_and_ends_no_look(stage: WatchStage) -> None:
    stage.script(status=lambda _: "complete" if stage.clock.now() > 30 else "running")
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        store: Any = await stage.app.store()
        real = store.info

        async def broken(*_: Any) -> Any:
            raise ValueError("a bug of the driver")

        store.info = broken
        with pytest.raises(ValueError, match="a bug of the driver"):
            await run.result()
        store.info = real
        assert await run.result() == "id-1"

    stage.play(scene)


async def _done_at(stage: WatchStage, w: Any, at: float) -> Any:
    w.status("running")
    return Done() if stage.clock.now() >= at else Wait()


def test_what_has_changed_is_read_before_the_first_looks_of_many_new_callers(stage: WatchStage) -> None:
    async def scene() -> None:
        store: Any = await stage.app.store()
        ids = [one.id for one in await store.enqueue([one_task(store, number) for number in range(5 * QUERY_LIMIT)])]
        real = store.ended

        async def slow(task_ids: Any) -> Any:
            await asyncio.sleep(0.1)
            return await real(task_ids)

        store.ended = slow
        waiters = RunWaiters(store)
        [first, *rest] = ids
        hearing = asyncio.ensure_future(waiters.ask(first, WaitRequest(after=1)))
        await asyncio.sleep(1)
        waiting = [asyncio.ensure_future(waiters.ask(task_id, WaitRequest(after=1))) for task_id in rest]
        await asyncio.sleep(0.05)
        store._feed.add(store._index.live[first], stage.clock.wall(), [NewEvent(2, '{"phase":"looking"}')])
        waiters.settled([first])
        began = stage.clock.now()
        await hearing
        assert stage.clock.now() - began < 0.2, "one slice that was under way, and its own"
        for one in waiting:
            one.cancel()
        await waiters.close()

    stage.play(scene, working=False)
