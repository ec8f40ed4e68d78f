"""B13: business rows that should have a run get one, whoever forgot to begin it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from watches.stage import WatchStage


def test_b13_a_row_that_has_started_and_has_no_run_gets_one_within_a_round(stage: WatchStage) -> None:
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


def test_b13_a_row_that_has_a_run_or_had_one_gets_no_other(stage: WatchStage) -> None:
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


def test_b13_a_round_that_fails_is_tried_again(stage: WatchStage, caplog: pytest.LogCaptureFixture) -> None:
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
