"""An app with an adopted table: rows that any program writes are run, and each row says what became of it."""

import asyncio
import logging
import threading

import pytest

from everpoll import Cancel, Everpoll, Snooze
from everpoll.policy import Backoff
from everpoll.tables import Row
from tables.stages import BARE, JOBS, QUICK, TableStage

SLOW = Backoff("1h", factor=1, cap="1h", jitter=0)


async def nothing(row: Row) -> None:
    """A handler."""


async def test_rows_written_by_hand_are_run_and_done(stage: TableStage) -> None:
    """Before the app starts, and while it runs."""
    seen: list[tuple[int, str, int]] = []

    async def handle(row: Row) -> dict[str, object]:
        seen.append((row.id, row["payload"], row.attempt))
        return {"report": {"length": len(row["payload"])}}

    await stage.create()
    await stage.queue(1, payload="before")
    async with stage.working(handle):
        await stage.until_all("completed")
        await stage.queue(2, payload="meanwhile")
        rows = await stage.until_all("completed")
    assert seen == [(1, "before", 1), (2, "meanwhile", 1)]
    assert [row["report"] for row in rows] == [{"length": 6}, {"length": 9}]


async def test_plain_functions_run_in_threads(stage: TableStage) -> None:
    threads: set[str] = set()

    def handle(row: Row) -> None:
        threads.add(threading.current_thread().name)

    await stage.create(BARE)
    await stage.queue(1, 2)
    async with stage.working(handle, stage.bare()):
        await stage.until_all("completed")
    assert threads
    assert threading.main_thread().name not in threads


async def test_a_failure_is_tried_three_times_with_its_error_in_the_row(stage: TableStage) -> None:
    attempts: list[int] = []

    async def handle(row: Row) -> None:
        attempts.append(row.attempt)
        raise ValueError(f"no {row.attempt}")

    await stage.create()
    await stage.queue(1)
    quick = Backoff("1ms", factor=1, cap="1ms", jitter=0)
    async with stage.working(handle, stage.mapping(backoff=quick)):
        [row] = await stage.until_all("failed")
    assert attempts == [1, 2, 3]
    assert (row["retry_count"], row["error"]) == (3, "ValueError: no 3")


async def test_a_handler_may_snooze_cancel_or_take_too_long(stage: TableStage) -> None:
    async def handle(row: Row) -> Snooze | Cancel | None:
        if row["payload"] == "snooze":
            return Snooze("1h")
        if row["payload"] == "cancel":
            return Cancel("not needed any more")
        await asyncio.sleep(60)
        return None

    await stage.create()
    for key, payload in enumerate(("snooze", "cancel", "late")):
        await stage.queue(key, payload=payload)
    async with stage.working(handle, stage.mapping(timeout="50ms", attempts=1)):
        rows = await stage.until(lambda rows: [row["status"] for row in rows] == ["queued", "canceled", "failed"])
    assert rows[0]["due_at"] is not None
    assert rows[0]["retry_count"] == 0
    assert rows[1]["error"] == "not needed any more"
    assert "longer than its timeout" in rows[2]["error"]


async def test_a_row_reads_as_a_mapping_and_says_what_is_not_read(stage: TableStage) -> None:
    found: list[object] = []

    async def handle(row: Row) -> None:
        found.extend([dict(row), len(row), repr(row), row.fence, row.is_stopping])
        with pytest.raises(KeyError, match="add it to columns"):
            row["report"]

    await stage.create()
    await stage.queue(7, payload="seven")
    async with stage.working(handle):
        await stage.until_all("completed")
    values, length, shown, fence, is_stopping = found
    assert (values, length, shown, is_stopping) == ({"payload": "seven"}, 1, "<Row jobs#7>", False)
    assert fence


async def test_never_more_handlers_than_slots(stage: TableStage) -> None:
    running = most = 0

    async def handle(row: Row) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    await stage.create(BARE)
    await stage.queue(*range(20))
    async with stage.working(handle, stage.bare(), slots=3):
        await stage.until_all("completed")
    assert most == 3


async def test_a_queue_with_rows_is_emptied_without_a_rest(stage: TableStage) -> None:
    """The poller would rest for an hour; with rows there, it does not."""
    await stage.create(BARE)
    await stage.queue(*range(30))
    async with stage.working(nothing, stage.bare(), slots=4, poll=SLOW):
        await stage.until_all("completed")


async def test_shutting_down_puts_work_in_progress_back(stage: TableStage) -> None:
    began = asyncio.Event()

    async def handle(row: Row) -> None:
        began.set()
        await asyncio.sleep(3600)

    await stage.create()
    await stage.queue(1)
    async with stage.working(handle) as working:
        await began.wait()
        await working.app.close(grace=0)
    row = await stage.one(1)
    assert (row["status"], row["retry_count"], row["worker_id"], row["error"]) == ("queued", 0, None, None)


async def test_a_row_that_the_user_cancels_under_way_is_stopped_and_left_alone(stage: TableStage) -> None:
    """Seen by the next heartbeat: the handler is canceled, and its row stays as the user has it."""
    began, stopped = asyncio.Event(), asyncio.Event()

    async def handle(row: Row) -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    await stage.create()
    await stage.queue(1)
    async with stage.working(handle, stage.mapping(heartbeat_every="50ms", stale_after="10s")) as working:
        await began.wait()
        await stage.change(1, status="canceled", error="by hand")
        before = await stage.one(1)
        async with asyncio.timeout(20):
            await stopped.wait()
        await stage.until(lambda rows: working.app.health().tables["jobs"].running == 0)
    assert await stage.one(1) == before


async def test_a_tables_poller_reports_its_health(stage: TableStage) -> None:
    await stage.create(BARE)
    await stage.queue(*range(6))
    async with stage.working(nothing, stage.bare(), slots=2) as working:
        await stage.until_all("completed")
        await stage.until(lambda _: (working.adopted.health() or pytest.fail("it runs")).lease_success_rate == 1.0)
        health = working.app.health()
        mine = health.tables["jobs"]
        assert health.healthy
        assert (mine.healthy, mine.polling, mine.consecutive_errors, mine.slots) == (True, True, 0, 2)
        assert mine.polls_per_minute > 0
        assert mine.rows_per_poll > 0
        assert mine.lease_latency_s is not None
    assert working.app.health().tables == {}


async def test_every_look_is_logged_and_every_claim_is_told(
    stage: TableStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "everpoll.engine")
    await stage.create(BARE)
    await stage.queue(41)
    async with stage.working(nothing, stage.bare()):
        await stage.until_all("completed")
    answer = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "leased 1 task: jobs#41") in answer
    assert any(level == "DEBUG" and text.startswith("polled jobs: ") for level, text in answer)


async def test_several_tables_in_one_process(stage: TableStage) -> None:
    seen: list[tuple[str, int]] = []
    await stage.create(JOBS)
    await stage.create(BARE, table="audits")
    await stage.queue(1, 2)
    await stage.queue(3, table="audits")
    app = Everpoll("memory://")

    async def run(row: Row) -> None:
        seen.append(("jobs", row.id))

    async def audit(row: Row) -> None:
        seen.append(("audits", row.id))

    await stage.prepare(stage.mapping())
    await stage.prepare(stage.bare("audits"))
    stage.adopt(app, stage.mapping(), poll=QUICK).handler(run)
    stage.adopt(app, stage.bare("audits"), poll=QUICK).handler(audit)
    async with app:
        await stage.until_all("completed")
        await stage.until_all("completed", table="audits")
    assert sorted(seen) == [("audits", 3), ("jobs", 1), ("jobs", 2)]


async def test_a_table_without_a_handler_is_left_alone(stage: TableStage) -> None:
    await stage.create(BARE)
    await stage.queue(1)
    app = Everpoll("memory://")
    stage.adopt(app, stage.bare())
    async with app:
        assert app.health().tables == {}
    assert await stage.statuses() == {1: "queued"}


async def test_connections_that_break_lose_and_repeat_nothing(stage: TableStage) -> None:
    """Cut again and again while rows are claimed, run and settled."""
    runs: list[int] = []

    async def handle(row: Row) -> None:
        runs.append(row.id)
        await asyncio.sleep(0.01)

    await stage.create()
    async with stage.working(handle, slots=8) as working:
        for batch in range(5):
            await stage.queue(*range(batch * 40, batch * 40 + 40))
            await stage.until(lambda rows: any(row["status"] != "queued" for row in rows[-40:]))
            await stage.cut_connections()
        await stage.until_all("completed")
        assert working.app.health().healthy
    assert set(runs) == set(range(200))
    assert {row["retry_count"] for row in await stage.rows()} == {0}
