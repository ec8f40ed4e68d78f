"""At any size, a look, a beat and a settlement read a few rows, by an index; a user who lacks it is told."""

import logging
import sqlite3
from typing import Any

import pytest

from everpoll.drivers.sqlite.lane import Op
from everpoll.tables.claims import Claim
from everpoll.tables.outcome import RowWrite
from everpoll.tables.settling import Settled
from everpoll.tables.sqlite import SqliteTable
from everpoll.tables.sqlite.findings import explain
from everpoll.tables.sqlite.statements import Statements
from tables.sqlite_stage import SqliteStage
from tables.stages import BARE, JOBS, Claimer, keys

MANY = 1_000_000
FILL = """insert into jobs (id, status, created_at)
    with recursive n (i) as (select 1 union all select i + 1 from n where i < {many})
    select i, case when i % 10 = 0 then 'queued' else 'completed' end, printf('2025-01-01 %07d', i) from n"""
WAITING = """insert into jobs (id, status, created_at, due_at)
    with recursive n (i) as (select 1 union all select i + 1 from n where i < {many})
    select -i, 'queued', '2020', '2999-01-01 00:00:00' from n"""
SORT = "USE TEMP B-TREE"
FEW_STEPS = 400
"""Of SQLite's virtual machine. A look at ten rows takes about 300; one more row takes about 20."""


async def test_at_a_million_rows(sqlite_stage: SqliteStage) -> None:
    """The poll query goes through the index and does not sort, and a look with nothing to do costs next to nothing."""
    await sqlite_stage.create(BARE)
    await sqlite_stage.execute(FILL.format(many=MANY))
    source = sqlite_stage.source(sqlite_stage.bare())
    assert [one.what for one in await source.inspect() if not one.is_fit] == ["index", "journal mode", "heartbeat"]
    [index] = source.ddl()
    assert index.endswith('on "jobs" ("status", "created_at")')
    await sqlite_stage.execute(index)
    found = {one.what: one for one in await source.inspect()}
    assert found["index"].is_fit
    assert "USING INDEX jobs_queue (status=?)" in found["index"].detail
    assert SORT not in found["index"].detail
    async with sqlite_stage.claimer(sqlite_stage.bare()) as worker:
        assert keys(await worker.take(3)) == [10, 20, 30]
        assert await _steps(worker, 10) < FEW_STEPS
        await sqlite_stage.execute("update jobs set status = 'completed' where status = 'queued'")
        assert await worker.take(3) == []
        assert await _steps(worker, 10) < 50


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize(
    ("key", "options", "index"),
    [
        ("id integer primary key", {}, '("status", "created_at")'),
        ("id text primary key", {}, '("status", "created_at", "id")'),
        ("id integer primary key", {"priority": "priority"}, '("status", "priority" desc, "created_at")'),
        ("id text primary key", {"priority": "priority"}, '("status", "priority" desc, "created_at", "id")'),
    ],
)
async def test_the_index_that_is_offered_serves(
    sqlite_stage: SqliteStage, key: str, options: Any, index: str, analyzed: bool
) -> None:
    await sqlite_stage.execute(
        f"""create table jobs ({key}, status text, created_at text, worker_id text, started_at text, payload text,
        priority integer not null default 0)"""
    )
    await sqlite_stage.execute(FILL.format(many=2_000))
    mapping = sqlite_stage.bare(**options)
    [ddl] = sqlite_stage.source(mapping).ddl()
    assert ddl.endswith(index)
    await sqlite_stage.execute(ddl)
    if analyzed:
        await sqlite_stage.execute("analyze")
    found = {one.what: one for one in await sqlite_stage.source(mapping).inspect()}
    assert found["index"].is_fit
    assert SORT not in found["index"].detail
    assert sqlite_stage.source(mapping).ddl() == []


async def test_without_rowid_the_key_is_at_the_end_of_every_index(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute(
        """create table jobs (id text primary key, status text, created_at text, worker_id text, started_at text,
        payload text) without rowid"""
    )
    [ddl] = sqlite_stage.source(sqlite_stage.bare()).ddl()
    assert ddl.endswith('("status", "created_at")')
    await sqlite_stage.execute(ddl)
    found = {one.what: one for one in await sqlite_stage.source(sqlite_stage.bare()).inspect()}
    assert found["index"].is_fit
    assert SORT not in found["index"].detail


@pytest.mark.parametrize(
    "index",
    [
        "create index mine on jobs (created_at) where status = 'queued'",
        "create index mine on jobs (status, created_at, payload)",
    ],
)
async def test_an_index_of_the_users_own_serves(sqlite_stage: SqliteStage, index: str) -> None:
    """Also one that holds only the rows that wait."""
    await sqlite_stage.create(BARE)
    await sqlite_stage.execute(FILL.format(many=2_000))
    await sqlite_stage.execute(index)
    found = {one.what: one for one in await sqlite_stage.source(sqlite_stage.bare()).inspect()}
    assert found["index"].is_fit
    assert "INDEX mine" in found["index"].detail


@pytest.mark.parametrize("index", ["jobs (status)", "jobs (created_at)", "jobs (created_at, status)"])
async def test_an_index_that_does_not_serve_is_told(
    sqlite_stage: SqliteStage, index: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It sorts all rows that wait, or reads all that have ended, at every look. The worker starts all the same."""
    await sqlite_stage.create(BARE)
    await sqlite_stage.execute(f"create index mine on {index}")
    async with sqlite_stage.claimer(sqlite_stage.bare()) as worker:
        found = {one.what: one for one in await worker.source.inspect()}
        assert (found["index"].is_fit, found["index"].is_needed) == (False, True)
        assert found["index"].ddl == 'create index if not exists "jobs_queue" on "jobs" ("status", "created_at")'
    assert [one.levelno for one in caplog.records if "jobs_queue" in one.message] == [logging.WARNING]


@pytest.mark.parametrize("due_at", ["null", "'2020-01-01 00:00:00'", "'2999-01-01 00:00:00'"])
async def test_the_order_decides_which_index_whatever_the_statistics(sqlite_stage: SqliteStage, due_at: str) -> None:
    """With an index on due times at hand, SQLite would like to collect all that are due, and sort them."""
    await sqlite_stage.create(JOBS)
    await sqlite_stage.execute(FILL.format(many=20_000))
    await sqlite_stage.execute(f"update jobs set due_at = {due_at}")  # noqa: S608 - one of the above
    mapping = sqlite_stage.mapping()
    for statement in sqlite_stage.source(mapping).ddl():
        await sqlite_stage.execute(statement)
    for _ in range(2):
        found = {one.what: one for one in await sqlite_stage.source(mapping).inspect()}
        assert "INDEX jobs_queue (status=?)" in found["index"].detail
        assert found["index of due times"].is_fit
        assert SORT not in found["index"].detail
        await sqlite_stage.execute("analyze")


async def test_rows_that_wait_for_their_time_are_passed_over(sqlite_stage: SqliteStage) -> None:
    """An idle look reads none of them, by an index of their own."""
    await sqlite_stage.create(JOBS)
    await sqlite_stage.execute(WAITING.format(many=100_000))
    mapping = sqlite_stage.mapping()
    for statement in sqlite_stage.source(mapping).ddl():
        await sqlite_stage.execute(statement)
    assert all(one.is_fit or one.what == "journal mode" for one in await sqlite_stage.source(mapping).inspect())
    async with sqlite_stage.claimer(mapping) as worker:
        assert (await worker.look()).next_due_s is not None
        statements = _statements(worker)
        assert await _counted(worker, *statements.peek()) < 100


async def test_what_runs_all_the_time_goes_through_an_index(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.create(JOBS)
    mapping = sqlite_stage.mapping(guard="version")
    for statement in sqlite_stage.source(mapping).ddl():
        await sqlite_stage.execute(statement)
    async with sqlite_stage.claimer(mapping) as worker:
        statements = _statements(worker)
        claims = [Claim(key, "w", "2030-01-01 00:00:00.000000") for key in range(4)]
        done = RowWrite(status="completed", is_end=True, results={"report": 1})
        again = RowWrite(status="queued", is_end=False, keeps_error=True, delay_s=1.0)
        asked = [statements.poll(4), statements.peek(), statements.claim("w", 0, range(4))]
        ends = [[Settled(0, one, write, write.pattern) for one in claims] for write in (done, again)]
        asked += [statements.settle(group, 0) for group in ends]
        asked += [*statements.beats(claims), *statements.holds(claims), *statements.rescues()]
        asked += [*statements.rescues([(1,)]), *statements.states(range(4))]
        for statement, _ in asked:
            plan = await _plan(worker, statement)
            assert [step for step in plan if step.startswith("SCAN") and "CONSTANT" not in step] == [], statement
            assert not any(SORT in step for step in plan), (statement, plan)


def _statements(worker: Claimer) -> Statements:
    assert isinstance(worker.source, SqliteTable)
    return worker.source._at_work()


async def _plan(worker: Claimer, statement: str) -> list[str]:
    assert isinstance(worker.source, SqliteTable)
    return await worker.source._write(Op(lambda con: explain(con, statement)))


async def _steps(worker: Claimer, limit: int) -> int:
    return await _counted(worker, *_statements(worker).poll(limit))


async def _counted(worker: Claimer, statement: str, bound: dict[str, Any]) -> int:
    """Virtual machine instructions, to the nearest ten: no clock decides."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 10
        return 0

    def run(con: sqlite3.Connection) -> None:
        con.execute(statement, bound).fetchall()  # the first time, the schema may have to be read
        con.set_progress_handler(count, 10)
        con.execute(statement, bound).fetchall()
        con.set_progress_handler(None, 0)

    assert isinstance(worker.source, SqliteTable)
    await worker.source._write(Op(run))
    return counted
