"""Programs that know nothing of everpoll read and write the table with plain sqlite3, while it is worked on."""

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from everpoll.drivers.wake import Wake
from everpoll.stores.contract import Leased
from everpoll.tables import Guard, Row
from everpoll.tables.mapping import GUARDS
from everpoll.tables.sqlite import SqliteTable
from tables.sqlite_stage import SqliteStage
from tables.stages import GIVE_UP_S, JOBS

WRITES = """
import sqlite3, sys
con = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    con.execute("insert into jobs (id, status, payload) values (?, 'queued', 'from outside')", (number,))
    if number % 10 == 0:
        con.execute("update jobs set payload = 'seen' where id = ? and status = 'completed'", (number - 5,))
        con.execute("select count(*), max(finished_at) from jobs where status = 'completed'").fetchall()
"""


async def test_rows_that_another_program_inserts_wake_the_worker(sqlite_stage: SqliteStage) -> None:
    """The poller rests for half a minute, longer than this test waits: it was woken."""
    await sqlite_stage.create()
    began: asyncio.Queue[Any] = asyncio.Queue()

    async def handle(row: Row) -> None:
        began.put_nowait(row.id)

    async with sqlite_stage.working(handle, poll=None) as working, asyncio.timeout(GIVE_UP_S):
        for number in range(3):
            await _resting(working.adopted)
            await _run(sqlite_stage, number, number + 1)
            assert await began.get() == number
        await _resting(working.adopted)
        with closing(sqlite_stage.connect()) as con:  # of this process, and of its own
            con.execute("insert into jobs (id, status) values (99, 'queued')")
        assert await began.get() == 99
        health = working.adopted.health()
        assert health is not None
        assert health.push


async def test_commits_that_concern_other_tables_cause_no_looks(
    sqlite_stage: SqliteStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty commits beside the table are heard by its writer; the worker looks when a row comes."""
    await sqlite_stage.create()
    await sqlite_stage.execute("create table others (id integer)")
    began, looks = asyncio.Event(), 0
    lease = SqliteTable.lease

    async def counted(self: SqliteTable, *arguments: Any) -> Leased:
        nonlocal looks
        looks += 1
        return await lease(self, *arguments)

    async def handle(row: Row) -> None:
        began.set()

    monkeypatch.setattr(SqliteTable, "lease", counted)
    async with sqlite_stage.working(handle, poll=None) as working, asyncio.timeout(GIVE_UP_S):
        await _resting(working.adopted)
        heard: list[bool] = []
        file_listeners = working.adopted.source._file_listeners  # type: ignore[attr-defined]
        wake_listeners = file_listeners.wake

        def heard_ring(wake: Wake) -> None:
            heard.append(file_listeners.is_muted)
            wake_listeners(wake)

        monkeypatch.setattr(file_listeners, "wake", heard_ring)
        before = looks
        with closing(sqlite_stage.connect()) as con:
            while heard.count(True) < 5:
                con.execute("insert into others values (1)")
                await asyncio.sleep(0.01)
        assert looks - before <= 1, "at most the look that was under way"
        await sqlite_stage.queue(1)
        await began.wait()


async def test_a_row_that_waits_for_its_time_is_begun_then(sqlite_stage: SqliteStage) -> None:
    """No commit happens when its time comes: the worker knew."""
    await sqlite_stage.create()
    began = asyncio.Event()

    async def handle(row: Row) -> None:
        began.set()

    async with sqlite_stage.working(handle, poll=None) as working, asyncio.timeout(GIVE_UP_S):
        await _resting(working.adopted)
        soon = "strftime('%Y-%m-%d %H:%M:%f', 'now', '+1 second')"
        await sqlite_stage.execute(f"insert into jobs (id, status, due_at) values (1, 'queued', {soon})")  # noqa: S608
        await began.wait()


@pytest.mark.parametrize(
    "change", ["update jobs set status = 'canceled' where id = 1", "delete from jobs where id = 1"]
)
async def test_a_row_that_its_owner_takes_away_stops_its_handler(sqlite_stage: SqliteStage, change: str) -> None:
    """At once, not with the next beat, which is half a minute away; and what the owner wrote stays."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2)
    begun, stopped, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(row: Row) -> dict[str, Any]:
        if row.id == 2:
            begun.set()
            await may_end.wait()
            return {"report": "mine"}
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {"report": "never"}

    async with sqlite_stage.working(handle, poll=None), asyncio.timeout(GIVE_UP_S):
        await begun.wait()
        await sqlite_stage.execute(change)
        await stopped.wait()
        may_end.set()
        await sqlite_stage.until(lambda rows: rows[-1]["status"] == "completed")
    rows = {row["id"]: row for row in await sqlite_stage.rows()}
    assert rows[2]["report"] == "mine"
    assert 1 not in rows or (rows[1]["status"], rows[1]["report"]) == ("canceled", None)


async def test_a_row_that_is_queued_again_under_way_runs_again(sqlite_stage: SqliteStage) -> None:
    """The first run is stopped, or its result is dropped: only the second one counts."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    runs: list[asyncio.Event] = []

    async def handle(row: Row) -> dict[str, Any]:
        runs.append(asyncio.Event())
        if len(runs) == 1:
            runs[0].set()
            await asyncio.Event().wait()
        return {"report": len(runs)}

    async with sqlite_stage.working(handle, poll=None), asyncio.timeout(GIVE_UP_S):
        while not runs:  # noqa: ASYNC110 - the handler makes it true
            await asyncio.sleep(0.005)
        await sqlite_stage.change(1, status="queued")
        await sqlite_stage.until_all("completed")
    row = await sqlite_stage.one(1)
    assert (row["report"], row["retry_count"]) == (2, 0)


@pytest.mark.parametrize("guard", GUARDS)
async def test_a_busy_program_beside_busy_workers(sqlite_stage: SqliteStage, guard: Guard) -> None:
    """Each of its rows runs once; no process is locked out."""
    await sqlite_stage.create()
    runs: Counter[Any] = Counter()

    async def handle(row: Row) -> None:
        runs[row.id] += 1

    mapping = sqlite_stage.mapping(guard=guard)
    async with sqlite_stage.working(handle, mapping, poll=None), sqlite_stage.working(handle, mapping, poll=None):
        await asyncio.gather(_run(sqlite_stage, 0, 150), _run(sqlite_stage, 1_000, 1_150))
        await sqlite_stage.until(lambda rows: len(rows) == 300 and all(row["status"] == "completed" for row in rows))
    assert set(runs.values()) == {1}
    assert len(runs) == 300


async def test_what_finds_nothing_leaves_no_trace(sqlite_stage: SqliteStage) -> None:
    """Looks and beats with nothing to do commit nothing that others would hear, and a look takes no lock."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1, due_at="2999-01-01 00:00:00")
    async with sqlite_stage.claimer() as worker:
        await worker.look()
        with closing(sqlite_stage.connect()) as con:
            before = con.execute("pragma data_version").fetchone()
            for _ in range(3):
                assert (await worker.look()).leases == []
                assert (await worker.beat()).rescued == 0
            assert con.execute("pragma data_version").fetchone() == before
            con.execute("begin immediate")
            assert (await worker.look()).leases == []
            con.execute("rollback")


async def test_readers_are_not_held_up(sqlite_stage: SqliteStage) -> None:
    """A program in the middle of a long read neither stops the worker nor sees its rows change."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer() as worker:
        with closing(sqlite_stage.connect()) as con:
            con.execute("begin")
            assert con.execute("select status from jobs").fetchall() == [("queued",)]
            assert await worker.end(await worker.take_one()) == set()
            assert con.execute("select status from jobs").fetchall() == [("queued",)]
            con.execute("rollback")
            assert con.execute("select status from jobs").fetchall() == [("completed",)]


async def test_triggers_of_the_user_see_every_change(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.create(JOBS)
    await sqlite_stage.execute("create table seen (status text)")
    await sqlite_stage.execute(
        "create trigger note after update of status on jobs begin insert into seen values (new.status); end"
    )
    await sqlite_stage.execute(
        """create trigger touch after update on jobs
        begin update jobs set updated_at = current_timestamp where id = new.id; end"""
    )
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer() as worker:
        await worker.hand_back(await worker.take_one())
        lease = await worker.take_one()
        assert (await worker.beat(lease)).canceled == ()
        assert await worker.end(lease) == set()
    seen = [row["status"] for row in await sqlite_stage.fetch("select status from seen")]
    assert seen == ["running", "queued", "running", "completed"]


async def test_a_result_that_the_table_refuses_fails_its_row_alone(sqlite_stage: SqliteStage) -> None:
    """A constraint of the user's is against it; the rows that were settled with it are done."""
    await sqlite_stage.execute(
        """create table jobs (id integer primary key, status text, created_at text, worker_id text, started_at text,
        payload text, error text, size integer check (size < 10))"""
    )
    await sqlite_stage.queue(1, 2, 3)

    async def handle(row: Row) -> dict[str, Any]:
        return {"size": 2**70 if row.id == 3 else row.id * 5}

    async with sqlite_stage.working(handle, sqlite_stage.bare(results=("size",), error="error")):
        rows = await sqlite_stage.until_all("completed", "failed")
    assert [(row["status"], row["size"]) for row in rows] == [("completed", 5), ("failed", None), ("failed", None)]
    assert "CHECK constraint failed" in rows[1]["error"]


async def _resting(adopted: Any) -> None:
    while adopted._worker._poller.waiting_s is None:  # noqa: ASYNC110 - the poller makes it so
        await asyncio.sleep(0.005)


async def _run(stage: SqliteStage, first: int, end: int) -> None:
    """The other program."""
    command = [sys.executable, "-c", WRITES, str(stage.path), str(first), str(end)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
