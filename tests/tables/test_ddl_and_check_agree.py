"""After what `ddl` prints has run, `check` finds nothing missing, and `ddl` prints nothing more."""

import asyncio
from typing import Any

import pytest

from everpoll.tables import Table
from tables.postgres_stage import PostgresStage
from tables.sqlite_stage import SqliteStage
from tables.stages import MAPPED, TableStage

SHAPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    "no table, nothing mapped": (None, {"columns": ("payload",)}),
    "no table, everything mapped": (None, MAPPED),
    "no table, by version": (None, {**MAPPED, "guard": "version"}),
    "no table, by timestamp": (None, {**MAPPED, "guard": "timestamp"}),
    "a key and a status": ("create table jobs (id integer primary key, status text)", MAPPED),
    "a key of texts": ("create table jobs (name text primary key, state text)", {"key": "name", "status": "state"}),
    "other words": (
        "create table jobs (id integer primary key, status text not null)",
        {"queued": "pending", "running": "processing", "due_at": "not_before", "priority": "rank"},
    ),
    "names that need quotes": (None, {"key": "the id", "order_by": "group", "worker": 'wo"rker', "due_at": "order"}),
}


async def agree(stage: TableStage, table: str | None, options: dict[str, Any]) -> None:
    mapping = Table("jobs", **options)
    if table is not None:
        await stage.execute(table)
    source = stage.source(mapping)
    before = await source.inspect()
    assert any(one.is_needed and not one.is_fit for one in before)
    for statement in source.ddl():
        await stage.execute(statement)
    missing = {one.what for one in await source.inspect() if not one.is_fit}
    # A mapping without a heartbeat has nothing to add a column for; a worker itself switches a file to WAL.
    assert missing <= {"heartbeat", "journal mode"}
    assert "heartbeat" not in missing or mapping.heartbeat is None
    assert source.ddl() == []
    await source.open()
    await source.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_on_sqlite(runner: asyncio.Runner, sqlite_stage: SqliteStage, shape: str) -> None:
    runner.run(agree(sqlite_stage, *SHAPES[shape]))


@pytest.mark.parametrize("shape", SHAPES)
def test_on_postgres(runner: asyncio.Runner, postgres_stage: PostgresStage, shape: str) -> None:
    runner.run(agree(postgres_stage, *SHAPES[shape]))
