"""Plain SQL with which the demos write and read their tables, as any other program would.

Nothing here knows everpoll. A connection lasts for one statement, because other programs use the same database.
"""

# ruff: noqa: S608 - names of tables and columns are those of the examples, values are bound

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

Row = dict[str, Any]


class Unusable(RuntimeError):
    """The database did not do what the demo asked for."""


class Database(Protocol):
    """What a demo does to a database."""

    async def create(self, folder: Path) -> None:
        """Run the folder's `table.….sql` of this database; a table that is there already stays."""

    async def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """One after the other, in one transaction: their ids."""

    async def rows(self, table: str, ids: Sequence[Any]) -> list[Row]:
        """As they are now, in the order of their ids."""


class SqliteFile:
    """A file, by the standard library."""

    def __init__(self, url: str) -> None:
        self._path = Path(unquote(url.removeprefix("sqlite:///").partition("?")[0])).absolute()

    async def create(self, folder: Path) -> None:
        """See `Database`."""
        script = (folder / "table.sqlite.sql").read_text(encoding="utf-8")
        await asyncio.to_thread(self._run, lambda connection: connection.executescript(script))

    async def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """See `Database`."""

        def insert(connection: sqlite3.Connection) -> list[Any]:
            return [connection.execute(_insert(table, row, "?"), [*row.values()]).fetchone()[0] for row in rows]

        return await asyncio.to_thread(self._run, insert)

    async def rows(self, table: str, ids: Sequence[Any]) -> list[Row]:
        """See `Database`."""
        places = ", ".join("?" for _ in ids)
        statement = f"select * from {table} where id in ({places}) order by id"
        found = await asyncio.to_thread(
            self._run, lambda connection: connection.execute(statement, list(ids)).fetchall()
        )
        return [dict(row) for row in found]

    def _run(self, work: Any) -> Any:
        try:
            with closing(sqlite3.connect(self._path, timeout=10)) as connection, connection:
                connection.row_factory = sqlite3.Row
                return work(connection)
        except sqlite3.Error as error:
            raise Unusable(f"{self._path}: {error}") from None


class PostgresDatabase:
    """A server, by asyncpg."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def create(self, folder: Path) -> None:
        """See `Database`."""
        await self._run("execute", (folder / "table.postgres.sql").read_text(encoding="utf-8"))

    async def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """See `Database`."""
        return [await self._run("fetchval", _insert(table, row, "$"), *row.values()) for row in rows]

    async def rows(self, table: str, ids: Sequence[Any]) -> list[Row]:
        """See `Database`."""
        found = await self._run("fetch", f"select * from {table} where id = any($1) order by id", list(ids))
        return [dict(row) for row in found]

    async def _run(self, method: str, *arguments: Any) -> Any:
        import asyncpg  # noqa: PLC0415 - needed here only

        try:
            connection = await asyncpg.connect(self._url)
            try:
                return await getattr(connection, method)(*arguments)
            finally:
                await connection.close()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Unusable(f"Postgres: {error}") from None


def database(url: str) -> Database:
    """By the address that everpoll gets, too."""
    return SqliteFile(url) if url.startswith("sqlite:") else PostgresDatabase(url)


@contextmanager
def somewhere(url: str | None, name: str) -> Iterator[str]:
    """The address that was given, or that of a new file that lasts as long as the block."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix=f"everpoll-{name}-") as folder:
        yield f"sqlite:///{folder}/{name}.db"


def _insert(table: str, row: Mapping[str, Any], mark: str) -> str:
    places = ", ".join("?" if mark == "?" else f"${number}" for number in range(1, len(row) + 1))
    return f"insert into {table} ({', '.join(row)}) values ({places}) returning id"
