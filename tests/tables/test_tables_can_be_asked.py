"""People can ask a table: rows by status, the workers that hold rows, and why one row is where it is."""

import asyncio
import logging
from datetime import timedelta

import pytest

from everpoll import Everpoll
from everpoll.tables import Table
from everpoll.tables.contract import StatusCount
from everpoll.tables.overview import HELD_LIMIT, RowState
from everpoll.tables.shape import Column
from everpoll.tables.sqlite.shape import FileShape
from everpoll.tables.sqlite.statements import Statements
from everpoll.tables.statements import COUNT_LIMIT
from everpoll.tables.why import why_row
from tables.postgres_stage import PostgresStage
from tables.stages import BARE, HOUR_S, TableStage


async def answer(stage: TableStage, key: str) -> str:
    mapping = stage.mapping()
    source = stage.source(mapping)
    try:
        row = await source.row_state(key)
        assert row is not None
        why = why_row(mapping, f"jobs:{key}", row, await source.counts(), await source.workers())
    finally:
        await source.close()
    return " / ".join([why.verdict, *why.evidence, why.advice or ""])


def test_rows_are_counted_by_status(runner: asyncio.Runner, stage: TableStage) -> None:
    async def ask() -> None:
        await stage.create()
        await stage.queue(1, 2, 3)
        await stage.insert({"id": 4, "status": "completed"}, {"id": 5, "status": "draft"})
        source = stage.source(stage.mapping())
        counts = {one.status: one.rows for one in await source.counts()}
        await source.close()
        assert counts == {"queued": 3, "running": 0, "completed": 1, "failed": 0, "canceled": 0}

    runner.run(ask())


async def test_of_a_large_table_in_postgres_what_waits_is_counted_and_what_has_ended_is_not(
    postgres_stage: PostgresStage,
) -> None:
    """The index leads to what waits and runs; to count the rest, the whole table would be read."""
    await postgres_stage.create()
    await postgres_stage.queue(1, 2, 3)
    more = "insert into jobs (id, status) select n, 'completed' from generate_series(10, 10 + $1::int) n"
    await postgres_stage.fetch(more, COUNT_LIMIT)
    source = postgres_stage.source(postgres_stage.mapping())
    try:
        counts = {one.status: one.rows for one in await source.counts()}
    finally:
        await source.close()
    assert counts == {"queued": 3, "running": 0, "completed": None, "failed": None, "canceled": None}


def test_a_count_stops_at_its_limit() -> None:
    columns = {name: Column(name=name, declared="") for name in BARE}
    shape = FileShape(columns=columns, kind="table", is_strict=False, row_number="id")
    statements = Statements(Table("jobs"), shape)
    assert statements.counted("queued", [(10_001,)]) == StatusCount(status="queued", rows=10_000, is_capped=True)
    assert statements.counted("queued", [(10_000,)]) == StatusCount(status="queued", rows=10_000)
    assert HELD_LIMIT == 1_000


def test_workers_that_hold_rows_are_shown_by_their_heartbeats(runner: asyncio.Runner, stage: TableStage) -> None:
    async def ask() -> None:
        await stage.create()
        await stage.queue(1, 2, 3)
        async with stage.claimer(label="busy") as claimer:
            assert await claimer.take(2)
            [busy] = await claimer.source.workers()
            assert (busy.table, busy.label, busy.running, busy.is_alive) == ("jobs", "busy", 2, True)
            await stage.age(HOUR_S, "last_heartbeat", "started_at")
            [silent] = await claimer.source.workers()
            assert silent.is_alive is False

    runner.run(ask())


def test_why_answers_for_a_row_in_every_state(runner: asyncio.Runner, stage: TableStage) -> None:
    async def ask() -> None:
        await stage.create()
        await stage.queue(1, 2)
        await stage.insert(
            {"id": 3, "status": "failed", "error": "ValueError: no", "retry_count": 3}, {"id": 4, "status": "draft"}
        )
        assert "no worker holds a row of this table" in await answer(stage, "1")
        async with stage.claimer(label="busy") as claimer:
            await claimer.take(1)
            assert "jobs:1 runs on worker busy" in await answer(stage, "1")
            assert "waits for a free slot of a worker" in await answer(stage, "2")
            await stage.age(HOUR_S, "last_heartbeat", "started_at")
            assert "held by worker busy, which has not been heard of for 1h" in await answer(stage, "1")
        failed = await answer(stage, "3")
        assert "has ended as 'failed'" in failed
        assert "3 of 3 attempts have failed / the last error: ValueError: no" in failed
        assert "which the mapping does not name" in await answer(stage, "4")
        source = stage.source(stage.mapping())
        assert await source.row_state("99") is None
        assert await source.row_state("no number") is None
        await source.close()

    runner.run(ask())


def test_why_names_the_due_time_of_a_row(stage: TableStage, runner: asyncio.Runner) -> None:
    async def ask() -> RowState | None:
        await stage.create()
        await stage.queue(1)
        async with stage.claimer() as claimer:
            await claimer.retry(await claimer.take_one(), delay_s=600.0)
            return await claimer.source.row_state("1")

    row = runner.run(ask())
    assert row is not None
    assert row.due_at is not None
    assert timedelta(minutes=9) < row.due_at - row.now <= timedelta(minutes=10, seconds=1)
    assert "waits for its due time, in" in why_row(stage.mapping(), "jobs:1", row, [], []).verdict


def test_a_table_without_a_heartbeat_column_is_warned_of_once(
    runner: asyncio.Runner, stage: TableStage, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        await stage.create(BARE)
        mapping = stage.bare()
        await stage.prepare(mapping)
        app = Everpoll("memory://")

        @stage.adopt(app, mapping).handler
        async def handle(row: object) -> None: ...

        async with app:
            pass

    caplog.set_level(logging.WARNING, "everpoll.tables")
    runner.run(run())
    warnings = [one.message for one in caplog.records if "no heartbeat column is mapped" in one.message]
    assert len(warnings) == 1
    assert "stay 'running' until you reset them" in warnings[0]
