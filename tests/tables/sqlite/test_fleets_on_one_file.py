"""Processes that share a file: killed, frozen, locked out by another program; no row is lost, or ends twice."""

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tables.fleet import TableFleet
from tables.sqlite_stage import SqliteStage

ROWS = 40
QUICK: dict[str, Any] = {"heartbeat_every": "300ms", "stale_after": "1500ms"}
STEADY: dict[str, Any] = {"heartbeat_every": "1s", "stale_after": "3s"}
LONGER_THAN_STALE_S = 3.5
TABLE = """create table jobs (id integer primary key, status text, created_at text, worker_id text, started_at {0},
    finished_at {0}, error text, last_heartbeat {0}, retry_count integer not null default 0,
    priority integer not null default 0, due_at {0}, payload text, report text)"""


@pytest.mark.parametrize("declared", ["text", "integer"])
async def test_killed_and_frozen_workers_lose_nothing(sqlite_stage: SqliteStage, tmp_path: Path, declared: str) -> None:
    gate = tmp_path / "gate"
    await sqlite_stage.execute(TABLE.format(declared))
    await sqlite_stage.queue(*range(ROWS), payload=str(gate))
    with TableFleet(sqlite_stage, tmp_path, **QUICK) as fleet:
        killed, frozen, _ = await fleet.start(3)
        await fleet.until_begun(12)
        killed.kill()
        with closing(sqlite_stage.connect()) as con:
            # A process that is frozen while it holds the write lock would hold up the others for ever.
            con.execute("begin immediate")
            frozen.freeze()
            con.execute("rollback")
        gate.touch()
        await sqlite_stage.until_all("completed", "failed")
        rows = await sqlite_stage.rows()
        frozen.thaw()
        await fleet.until(lambda: frozen.said("its result is dropped") >= 4, "it tells of its losses")
        assert await sqlite_stage.rows() == rows
    assert Counter((row["status"], row["retry_count"]) for row in rows) == {
        ("completed", 0): ROWS - 8,
        ("completed", 1): 8,
    }


async def test_live_workers_that_were_locked_out_are_not_called_dead(sqlite_stage: SqliteStage, tmp_path: Path) -> None:
    """Another program keeps the file for longer than a heartbeat may be old: rows are given back, by those who have
    them, at no attempt's cost; no worker takes them from another.
    """
    gate = tmp_path / "gate"
    await sqlite_stage.create()
    await sqlite_stage.queue(*range(8), payload=str(gate))
    with TableFleet(sqlite_stage, tmp_path, **STEADY) as fleet:
        workers = await fleet.start(2)
        await fleet.until_begun(8)
        with closing(sqlite_stage.connect()) as con:
            con.execute("begin immediate")
            until = time.monotonic() + LONGER_THAN_STALE_S
            await fleet.until(lambda: len(fleet.effects("stopped")) == 8, "all handlers were stopped")
            await fleet.until(lambda: time.monotonic() > until, "every heartbeat is too old")
            con.execute("rollback")
        gate.touch()
        rows = await sqlite_stage.until_all("completed", "failed")
        assert {(row["status"], row["retry_count"], row["error"]) for row in rows} == {("completed", 0, None)}
        assert not any(worker.said("its worker was lost") for worker in workers)
