"""Connections of the drivers themselves: asyncpg, psycopg 3 and sqlite3."""

import sys
from typing import Any, TypeVar

from everpoll.drivers.callers import refusals
from everpoll.drivers.callers.work import CallerWork, PostgresWork, SqliteWork

T = TypeVar("T")

IDLE, IN_ERROR = 0, 3
"""The states of a transaction, as libpq numbers them."""


class Asyncpg:
    """asyncpg's connection, or one that a pool has lent."""

    is_async = True
    kind = "asyncpg connection"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def perform(self, work: CallerWork[T]) -> T:
        """Run the work in the open transaction."""
        if isinstance(work, SqliteWork):
            raise refusals.other_engine(self.kind, "Postgres", f"SQLite ({work.path})")
        if self._connection.is_closed():
            raise refusals.closed(self.kind)
        if not self._connection.is_in_transaction():
            raise refusals.no_transaction(self.kind, "write async with connection.transaction()")
        return work.read(await self._connection.fetchval(work.sql(lambda place: f"${place}"), *work.args))


class Psycopg:
    """psycopg's connection."""

    is_async = False
    kind = "psycopg connection"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def perform(self, work: CallerWork[T]) -> T:
        """Run the work in the open transaction, or let its statement open one."""
        cursor = self._cursor(work)
        assert isinstance(work, PostgresWork), "else it was refused"
        with cursor:
            cursor.execute(work.sql(_percent), work.args)
            return work.read(cursor.fetchone()[0])

    def _cursor(self, work: CallerWork[T]) -> Any:
        """Return a cursor of the plain kind, whatever factories the connection has."""
        connection = self._connection
        if isinstance(work, SqliteWork):
            raise refusals.other_engine(self.kind, "Postgres", f"SQLite ({work.path})")
        if connection.closed:
            raise refusals.closed(self.kind)
        status = int(connection.info.transaction_status)
        if status == IN_ERROR:
            raise refusals.failed(self.kind)
        if connection.autocommit and status == IDLE:
            raise refusals.no_transaction(self.kind, "write with connection.transaction()")
        psycopg = sys.modules["psycopg"]
        return (psycopg.AsyncCursor if self.is_async else psycopg.Cursor)(connection, row_factory=lambda _: tuple)


class AsyncPsycopg(Psycopg):
    """psycopg's asynchronous connection."""

    is_async = True
    kind = "psycopg AsyncConnection"

    async def perform(self, work: CallerWork[T]) -> T:  # type: ignore[override]
        """Run the work in the open transaction, or let its statement open one."""
        cursor = self._cursor(work)
        assert isinstance(work, PostgresWork), "else it was refused"
        async with cursor:
            await cursor.execute(work.sql(_percent), work.args)
            return work.read((await cursor.fetchone())[0])


class Sqlite3:
    """The standard library's connection to a file."""

    is_async = False
    kind = "sqlite3 connection"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def perform(self, work: CallerWork[T]) -> T:
        """Run the work in the open transaction, or open one as the connection would."""
        if isinstance(work, PostgresWork):
            raise refusals.other_engine(self.kind, "SQLite", "Postgres")
        return work.on(self._connection, self._connection, self.kind)


def _percent(_: int) -> str:
    return "%s"
