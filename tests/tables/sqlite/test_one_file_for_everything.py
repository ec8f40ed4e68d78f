"""The app's own file may be the user's: everpoll's tables live beside theirs, and jobs and rows run together."""

import asyncio
from collections import Counter
from contextlib import closing
from typing import Any

from everpoll import Everpoll
from everpoll.tables import Row
from tables.sqlite_stage import SqliteStage
from tables.stages import GIVE_UP_S

ROWS = 200


async def test_jobs_and_rows_run_together(sqlite_stage: SqliteStage) -> None:
    """Each row enqueues a job, each job inserts a row into another table of the user's; every one of them runs once."""
    await sqlite_stage.create()
    await sqlite_stage.create(table="audits")
    app = Everpoll(sqlite_stage.url)
    runs: Counter[str] = Counter()

    @app.job
    def note(number: int) -> None:
        runs[f"job {number}"] += 1
        with closing(sqlite_stage.connect()) as con:
            con.execute("insert into audits (id, status) values (?, 'queued')", (number,))

    executions = app.table(sqlite_stage.mapping())
    audits = app.table(sqlite_stage.mapping("audits"), slots=7)

    @executions.handler
    async def execute(row: Row) -> dict[str, Any]:
        runs[f"row {row.id}"] += 1
        await note.enqueue(row.id)
        return {"report": {"enqueued": row.id}}

    @audits.handler
    def audit(row: Row) -> None:
        runs[f"audit {row.id}"] += 1

    async with app, asyncio.timeout(2 * GIVE_UP_S):
        await sqlite_stage.queue(*range(ROWS))
        await sqlite_stage.until(
            lambda rows: len(rows) == ROWS and all(row["status"] == "completed" for row in rows), "audits"
        )
        await sqlite_stage.until_all("completed")
        health = app.health()
        assert health.healthy
        assert set(health.tables) == {"jobs", "audits"}
    assert set(runs.values()) == {1}
    assert len(runs) == 3 * ROWS


async def test_a_table_needs_nothing_of_everpolls_own(sqlite_stage: SqliteStage) -> None:
    """An app without jobs leaves nothing behind in the user's file but what it did."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    app = Everpoll(sqlite_stage.url)
    jobs = app.table(sqlite_stage.mapping())

    @jobs.handler
    async def run(row: Row) -> None: ...

    async with app:
        await sqlite_stage.until_all("completed")
    tables = await sqlite_stage.fetch("select name from sqlite_master where type in ('table', 'index')")
    assert [row["name"] for row in tables] == ["jobs"]
    assert [one.name for one in sqlite_stage.path.parent.iterdir()] == [sqlite_stage.path.name]


async def test_tables_in_several_files(sqlite_stage: SqliteStage) -> None:
    other = SqliteStage(sqlite_stage.path.with_name("other.db"))
    done: set[Any] = set()
    app = Everpoll("memory://")
    for stage, name in ((sqlite_stage, "jobs"), (other, "audits")):
        await stage.create(table=name)
        await stage.queue(1, 2, table=name)

        async def handle(row: Row, name: str = name) -> None:
            done.add((name, row.id))

        app.table(stage.mapping(name), url=stage.url).handler(handle)
    async with app:
        await sqlite_stage.until_all("completed")
        await other.until_all("completed", table="audits")
    assert done == {("jobs", 1), ("jobs", 2), ("audits", 1), ("audits", 2)}
