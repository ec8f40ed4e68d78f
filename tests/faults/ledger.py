"""What the database says became of the tasks, read from its tables: not by the code that is under test."""

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncpg

AGED = {"workers": ("started_at", "beat_at"), "tasks": ("created_at", "due_at", "started_at")}
"""What a store has written down by its own clock, of workers and of tasks."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A row of history."""

    id: int
    state: str
    incarnation: int
    """Who settled it, under which lease."""
    sequence: int
    attempt: int
    rescues: int
    result: Any
    trail: tuple[str, ...]
    """What was decided, in order."""
    lost_by: tuple[str, ...] = ()
    """Labels of the workers that it was rescued from."""


@dataclass(frozen=True, slots=True)
class Burial:
    """A worker that was declared dead, or signed off."""

    label: str
    silent_s: float
    """From its last beat to that."""


class Ledger(Protocol):
    """One database."""

    url: str

    def live(self) -> int:
        """How many tasks have not ended."""

    def history(self) -> list[Settled]:
        """Those that have; one that was settled twice would be there twice."""

    def burials(self) -> list[Burial]:
        """Return the processes that are gone."""

    def beats(self) -> dict[str, int]:
        """How often each worker that is not gone has beaten."""

    def losses(self) -> int:
        """How many results were dropped."""

    def step_clock(self, by_s: float) -> None:
        """Make all that was written about workers and their tasks look older, as a clock that steps forward does."""


class PostgresLedger:
    """A Postgres database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def live(self) -> int:
        return int(self.ask("select count(*) from everpoll.tasks")[0][0])

    def history(self) -> list[Settled]:
        rows = self.ask(
            "select id, state, owner, sequence, attempt, rescues, result::text, trail from everpoll.history order by id"
        )
        return [_settled(row, [json.loads(entry) for entry in row[7] or ()]) for row in rows]

    def burials(self) -> list[Burial]:
        rows = self.ask(
            """select label, extract(epoch from stopped_at - beat_at)::float8 from everpoll.workers
               where stopped_at is not null order by stopped_at"""
        )
        return [Burial(*row) for row in rows]

    def beats(self) -> dict[str, int]:
        return dict(self.ask("select label, beats from everpoll.workers where stopped_at is null"))

    def losses(self) -> int:
        return int(self.ask("select count(*) from everpoll.losses")[0][0])

    def step_clock(self, by_s: float) -> None:
        for table, columns in AGED.items():
            moved = ", ".join(f"{column} = {column} - interval '{by_s} seconds'" for column in columns)
            self.ask(f"update everpoll.{table} set {moved}")  # noqa: S608 - constants

    def cut_connections(self) -> None:
        """All but our own."""
        self.ask(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()"""
        )

    def ask(self, sql: str) -> list[Any]:
        """One statement, on a connection of its own."""

        async def asked() -> list[Any]:
            connection = await asyncpg.connect(self.url)
            try:
                return list(await connection.fetch(sql))
            finally:
                await connection.close()

        return asyncio.run(asked())


class SqliteLedger:
    """A SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def live(self) -> int:
        return int(self._ask("select count(*) from everpoll_tasks")[0][0])

    def history(self) -> list[Settled]:
        rows = self._ask(
            "select id, state, owner, sequence, attempt, rescues, result, trail from everpoll_history order by id"
        )
        return [_settled(row, json.loads(row[7] or "[]")) for row in rows]

    def burials(self) -> list[Burial]:
        rows = self._ask(
            """select label, (stopped_at - beat_at) / 1e6 from everpoll_workers
               where stopped_at is not null order by stopped_at"""
        )
        return [Burial(*row) for row in rows]

    def beats(self) -> dict[str, int]:
        return dict(self._ask("select label, beats from everpoll_workers where stopped_at is null"))

    def losses(self) -> int:
        return int(self._ask("select count(*) from everpoll_losses")[0][0])

    def step_clock(self, by_s: float) -> None:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
            for table, columns in AGED.items():
                moved = ", ".join(f"{column} = {column} - {int(by_s * 1e6)}" for column in columns)
                connection.execute(f"update everpoll_{table} set {moved}")  # noqa: S608 - constants

    def locked(self) -> sqlite3.Connection:
        """A connection that holds the only lock for writing until it is closed."""
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        connection.execute("begin immediate")
        return connection

    def is_locked(self) -> bool:
        """Return whether a process is in the middle of a transaction."""
        with closing(sqlite3.connect(self._path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            connection.execute("rollback")
            return False

    def _ask(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection:
            return connection.execute(sql).fetchall()


def _settled(row: Any, trail: list[dict[str, Any]]) -> Settled:
    result = None if row[6] is None else json.loads(row[6])
    task_id, state, incarnation, sequence, attempt, rescues = row[:6]
    whats = tuple(entry["what"] for entry in trail)
    lost_by = tuple(entry["worker"] for entry in trail if entry["what"] == "rescue")
    return Settled(task_id, state, incarnation, sequence, attempt, rescues, result, whats, lost_by)
