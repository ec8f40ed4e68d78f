"""The database that a benchmark fills by itself: the same rows go into SQLite or Postgres, in bulk."""

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import asyncpg

Row = tuple[Any, ...]
PART = 50_000


@dataclass(frozen=True)
class Database:
    """One of the two."""

    url: str
    path: Path | None
    """Of the file; None: it is Postgres."""

    def at(self, seconds: float) -> int | datetime:
        """Return an instant as this database stores it."""
        return round(seconds * 1e6) if self.path is not None else datetime.fromtimestamp(seconds, UTC)

    async def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Insert rows into one of everpoll's tables."""
        if self.path is not None:
            await asyncio.to_thread(self._insert_sqlite, self.path, table, columns, rows)
            return
        connection = await asyncpg.connect(self.url)
        try:
            left = iter(rows)
            while part := list(islice(left, PART)):
                await connection.copy_records_to_table(table, schema_name="everpoll", columns=columns, records=part)
        finally:
            await connection.close()

    async def execute(self, sqlite: str, postgres: str, *values: Any) -> Any:
        """Run the statement of this database; return the first value of its answer, None without a row."""
        if self.path is not None:
            with closing(sqlite3.connect(self.path, timeout=30)) as con, con:
                found = con.execute(sqlite, values).fetchone()
                return None if found is None else found[0]
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetchval(postgres, *values)
        finally:
            await connection.close()

    async def row(self, table: str, task_id: int) -> dict[str, Any]:
        """Return one row of one of everpoll's tables, by the names of its columns."""
        if self.path is not None:
            with closing(sqlite3.connect(self.path, timeout=30)) as con:
                con.row_factory = sqlite3.Row
                return dict(con.execute(f"select * from everpoll_{table} where id = ?", (task_id,)).fetchone())  # noqa: S608 - ours
        connection = await asyncpg.connect(self.url)
        try:
            return dict(await connection.fetchrow(f"select * from everpoll.{table} where id = $1", task_id))  # noqa: S608 - ours
        finally:
            await connection.close()

    async def settle_down(self) -> None:
        """Bring statistics and free space up to date, as the database does by itself before long."""
        if self.path is None:
            connection = await asyncpg.connect(self.url)
            try:
                await connection.execute("vacuum analyze")
                await connection.execute("checkpoint")
            finally:
                await connection.close()
        else:
            with closing(sqlite3.connect(self.path, timeout=30)) as con:
                con.execute("pragma wal_checkpoint(truncate)").fetchall()

    @staticmethod
    def _insert_sqlite(path: Path, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        with closing(sqlite3.connect(path, timeout=30)) as con, con:
            con.execute("pragma synchronous = off")
            con.execute("pragma cache_size = -200000")
            con.executemany(
                f"insert into everpoll_{table} ({', '.join(columns)}) values ({marks})",  # noqa: S608 - ours
                rows,
            )


def spread(count: int, start: float, end: float) -> Iterator[tuple[int, float]]:
    """Yield numbers from 0, and instants as far apart from each other, the oldest first."""
    for number in range(count):
        yield number, start + (end - start) * (number + 0.5) / count
