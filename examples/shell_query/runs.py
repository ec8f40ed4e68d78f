"""The business table `shell_query_runs`: what the product knows of a query, whatever everpoll knows of its run.

Promises: a row ends once; what comes later changes nothing. Every call is one transaction, in a thread. The
first call creates the table.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

T = TypeVar("T")

SCHEMA = """
create table if not exists shell_query_runs (
  run_id text primary key,
  tenant_id text not null,
  mid text not null,
  sql_text text not null,
  status text not null default 'queued' check (status in ('queued', 'running', 'ready', 'failed', 'canceled')),
  task_id text,
  query_definition_id text,
  poll_started_at real,
  error_message text,
  created_at real not null,
  completed_at real
) strict
"""


class ShellQuery(Struct, frozen=True, kw_only=True):
    """The query to run, and its tenant."""

    run_id: str
    sql_text: str
    tenant_id: str = "acme"
    mid: str = "510000001"


class Runs:
    """The table, in a file of the application's own."""

    def __init__(self, path: Path | str, wall: Callable[[], float] = time.time) -> None:
        self._path = Path(path)
        self._wall = wall

    async def add(self, op: ShellQuery) -> None:
        """Insert the row of a query; an existing row does not change."""
        sql = """insert into shell_query_runs (run_id, tenant_id, mid, sql_text, created_at) values (?, ?, ?, ?, ?)
                 on conflict do nothing"""
        await self._run(lambda c: c.execute(sql, (op.run_id, op.tenant_id, op.mid, op.sql_text, self._wall())))

    async def started(self, run_id: str, task_id: str, query_definition_id: str) -> None:
        """It runs in the cloud, under these ids."""
        sql = """update shell_query_runs set status = 'running', task_id = ?, query_definition_id = ?,
                   poll_started_at = coalesce(poll_started_at, ?)
                 where run_id = ? and completed_at is null"""
        await self._run(lambda c: c.execute(sql, (task_id, query_definition_id, self._wall(), run_id)))

    async def ended(self, run_id: str, outcome: str, error: str | None) -> None:
        """It has ended."""
        status = "failed" if outcome == "timed_out" else outcome
        sql = """update shell_query_runs set status = ?, error_message = ?, completed_at = ?
                 where run_id = ? and completed_at is null"""
        await self._run(lambda c: c.execute(sql, (status, error, self._wall(), run_id)))

    async def unfinished(self, older_than_s: float) -> list[dict[str, Any]]:
        """Rows that have not ended and are older than that."""
        sql = "select * from shell_query_runs where completed_at is null and created_at <= ? order by created_at"
        return await self._run(lambda c: [dict(row) for row in c.execute(sql, (self._wall() - older_than_s,))])

    async def all(self) -> dict[str, dict[str, Any]]:
        """Every row, by its run."""
        sql = "select * from shell_query_runs order by created_at, run_id"
        return await self._run(lambda c: {row["run_id"]: dict(row) for row in c.execute(sql)})

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with closing(sqlite3.connect(self._path, timeout=10)) as connection, connection:
                connection.row_factory = sqlite3.Row
                connection.execute(SCHEMA)
                return work(connection)

        return await asyncio.to_thread(run)
