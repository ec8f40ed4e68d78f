"""Whatever a handler raises is its row's failure, counted and told; only Ctrl-C is not."""

import asyncio

import pytest

from everpoll.tables import Row
from tables.stages import TableStage


class Odd(BaseException):
    """None of the errors that anybody expects."""


@pytest.mark.parametrize("error", [Odd("odd"), SystemExit(3), GeneratorExit(), asyncio.CancelledError("own")], ids=repr)
@pytest.mark.parametrize("is_async", [True, False])
async def test_d3_it_is_tried_three_times_and_then_has_failed(
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
