"""Business rows without a run get one, and cleanups that were given up are tried again."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from everpoll import RunFailed
from everpoll.stores.contract import WorkerCard
from everpoll.watches.rounds import sweep
from watches.stage import WatchStage


def test_a_row_that_has_started_and_has_no_run_gets_one_within_a_round(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"])
    watch = stage.whole()
    rows: list[tuple[Any, ...]] = [({"sql": "1"}, "run-1", "task-1")]

    @watch.ensure(every="1m")
    async def orphans() -> list[tuple[Any, ...]]:
        return rows

    async def scene() -> None:
        await asyncio.sleep(10)
        run = await stage.app.watches.run("query", "run-1")
        assert await run.result() == "task-1"
        assert remote.count("start") == 0, "it had been started: its remote id was there"
        rows.append(({"sql": "2"}, "run-2"))
        await asyncio.sleep(70)
        assert await (await stage.app.watches.run("query", "run-2")).result() == "id-1"
        assert watch.counters["repairs"] == 2

    stage.play(scene)


def test_a_row_that_has_a_run_or_had_one_gets_no_other(stage: WatchStage) -> None:
    remote = stage.script(status=["running", "complete"])
    watch = stage.whole()

    @watch.ensure(every="10s")
    def rows() -> list[tuple[Any, ...]]:
        return [({}, "run-1")]

    async def scene() -> None:
        await asyncio.sleep(600)
        assert remote.count("start") == 1
        assert watch.counters["repairs"] == 1

    stage.play(scene)


def test_a_round_that_fails_is_tried_again(stage: WatchStage, caplog: pytest.LogCaptureFixture) -> None:
    watch = stage.whole()
    rounds = 0

    @watch.ensure(every="1m")
    async def rows() -> AsyncIterator[tuple[Any, ...]]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise ConnectionError("the business database is away")
        yield ({}, "run-1")

    async def scene() -> None:
        await asyncio.sleep(100)
        assert rounds == 2
        await stage.app.watches.run("query", "run-1")

    stage.play(scene)
    assert any("the round for rows without a run failed" in one.message for one in caplog.records)


def test_one_row_that_cannot_be_begun_holds_up_no_other(stage: WatchStage, caplog: pytest.LogCaptureFixture) -> None:
    watch = stage.whole()

    @watch.ensure(every="1m")
    def rows() -> list[Any]:
        return [({}, None), ({"x": object()}, "run-1"), "nonsense", ({}, True), ({}, ""), ({}, 7)]

    async def scene() -> None:
        await asyncio.sleep(1)
        assert (await (await stage.app.watches.run("query", "7")).info()).id == "7"
        assert watch.counters["repairs"] == 1

    stage.play(scene)
    assert sum("no run can be begun for the row" in one.message for one in caplog.records) == 5


def test_a_plain_query_does_not_hold_up_the_event_loop(stage: WatchStage) -> None:
    threads: list[str] = []

    async def scene() -> None:
        watch = stage.whole()

        @watch.ensure(every="1m")
        def rows() -> Iterator[tuple[Any, ...]]:
            threads.append(threading.current_thread().name)
            yield ({}, "run-1")

        await asyncio.sleep(1)
        await stage.app.watches.run("query", "run-1")
        assert [name.startswith("everpoll-watch") for name in threads] == [True]

    stage.app.job(name="something")(print)
    stage.play(scene)


def test_what_is_registered_while_the_app_runs_is_run_ensured_and_swept(stage: WatchStage) -> None:
    stage.app.job(name="something")(print)
    remote = stage.script(status=["complete"], clean=[ConnectionError("gone")])

    async def scene() -> None:
        watch = stage.whole(queue="another", cleanup_budget="1s")
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        assert (await run.info()).cleaned is False
        remote._answers["clean"] = [None]
        await asyncio.sleep(2 * 3600)
        assert (await run.info()).cleaned is True

    stage.play(scene)


def test_what_ended_behind_the_back_of_its_watch_is_cleaned_up_once(stage: WatchStage) -> None:
    """Its workers died of it, three times in a row: the rescue has ended it, and knows nothing of cleanups."""
    remote = stage.script()
    watch = stage.whole()

    async def scene() -> None:
        store = await stage.app.store()
        run = await watch.begin({"sql": 1}, id="r")
        async with stage.working():
            await asyncio.sleep(5)
        for _ in range(3):
            await asyncio.sleep(60)
            card = WorkerCard(incarnation=7, label="w", host="h", pid=1, queues=("default",), slots=1, version="1")
            await store.sign_on(card, 30.0)
            assert (await store.lease(7, {"default": 1}, 1)).leases
            await store.sign_off(7)
            await store.sign_on(msgspec.structs.replace(card, incarnation=8), 30.0)
            assert store.heartbeat_connection().rescue(8, (), ()).tasks == 1
            await store.sign_off(8)
        assert (await run.info()).phase == "ended"
        with pytest.raises(RunFailed):
            await run.result()
        assert remote.count("clean") == 0
        async with stage.working():
            assert [await sweep(stage.app.watches, "query") for _ in range(3)] == [1, 0, 0]
            await asyncio.sleep(60)
            assert [await sweep(stage.app.watches, "query") for _ in range(3)] == [0, 0, 0]
        assert [call.args for call in remote.calls if call.name == "clean"] == [("id-1", "query:r", "failed")]
        assert await stage.outcome(run) == "failed"

    stage.play(scene, working=False)


def test_a_sweep_sees_every_outcome_however_many_of_another_there_are(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"])
    watch = stage.whole(cleanup_budget="1s")

    async def scene() -> None:
        for number in range(5):
            await stage.ended(await watch.begin({}, id=f"good-{number}"))
        remote._answers |= {"status": ["error"], "clean": [ConnectionError("gone")]}
        bad = await watch.begin({}, id="bad")
        await stage.ended(bad)
        assert await sweep(stage.app.watches, "query", limit=2) == 1

    stage.play(scene)
