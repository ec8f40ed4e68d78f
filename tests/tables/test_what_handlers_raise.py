"""Whatever a handler raises is its row's failure, counted and told; only Ctrl-C is not."""

import asyncio

import pytest

from everpoll.tables import Row
from tables.sqlite_stage import SqliteStage
from tables.stages import BARE, TableStage


class Odd(BaseException):
    """None of the expected errors."""


@pytest.mark.parametrize("error", [Odd("odd"), SystemExit(3), GeneratorExit(), asyncio.CancelledError("own")], ids=repr)
@pytest.mark.parametrize("is_async", [True, False])
async def test_it_is_tried_three_times_and_then_has_failed(
    stage: TableStage, error: BaseException, is_async: bool
) -> None:
    await stage.create()
    await stage.queue(1, payload="bad")
    await stage.queue(2, payload="good")

    async def handle(row: Row) -> None:
        if row["payload"] == "bad":
            raise error

    def handle_in_thread(row: Row) -> None:
        if row["payload"] == "bad":
            raise error

    mapping = stage.mapping(due_at=None)
    async with stage.working(handle if is_async else handle_in_thread, mapping):
        bad, good = await stage.until_all("completed", "failed")
    assert (bad["status"], bad["retry_count"], good["status"]) == ("failed", 3, "completed")
    assert type(error).__name__ in bad["error"]


async def test_with_one_attempt_it_has_failed_at_once(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1)
    runs: list[int] = []

    async def handle(row: Row) -> None:
        runs.append(row.attempt)
        raise ValueError("no")

    async with stage.working(handle, stage.mapping(attempts=1)):
        [row] = await stage.until_all("failed")
    assert (row["retry_count"], runs) == (1, [1])


async def test_a_failure_is_in_the_log_of_its_worker_whatever_columns_there_are(
    sqlite_stage: SqliteStage, caplog: pytest.LogCaptureFixture
) -> None:
    await sqlite_stage.create(BARE)
    await sqlite_stage.queue(41, 42)

    async def handle(row: Row) -> object:
        if row.id == 41:
            raise ValueError("no such recording")
        return 7

    async with sqlite_stage.working(handle, sqlite_stage.bare()):
        await sqlite_stage.until_all("failed")
    assert "jobs#41: has failed (ValueError: no such recording)" in caplog.text
    assert "jobs#42: has failed (table jobs: its handler returned 7" in caplog.text


async def test_an_attempt_that_is_not_the_last_is_in_the_log_too(
    sqlite_stage: SqliteStage, caplog: pytest.LogCaptureFixture
) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1)

    async def handle(row: Row) -> None:
        if row.attempt == 1:
            raise ValueError("not yet")

    async with sqlite_stage.working(handle, sqlite_stage.mapping(due_at=None)):
        await sqlite_stage.until_all("completed")
    assert "jobs#1: attempt 1 of 3 failed (ValueError: not yet)" in caplog.text
