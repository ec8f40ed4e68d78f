"""Connections of frameworks, which use a driver: SQLAlchemy 2 and Django.

Promises: the framework runs the statement like any other, so that its own transaction begins with it, and its commit
and rollback include it.
"""

import sys
from typing import Any, TypeVar

from everpoll.drivers.callers import refusals
from everpoll.drivers.callers.work import CallerWork, SqliteWork

T = TypeVar("T")


class SqlAlchemy:
    """A `Connection` of SQLAlchemy, or the connection of a `Session` or scoped session."""

    is_async = False
    kind = "SQLAlchemy connection"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def perform(self, work: CallerWork[T]) -> T:
        """Run the work in the open transaction, or let its statement open one."""
        found = self._connection
        if callable(found):  # a scoped session
            found = found()
        return _on_connection(found if hasattr(found, "exec_driver_sql") else found.connection(), work, self.kind)


class AsyncSqlAlchemy:
    """An `AsyncConnection` of SQLAlchemy, or the connection of an `AsyncSession` or scoped session."""

    is_async = True
    kind = "SQLAlchemy AsyncConnection"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def perform(self, work: CallerWork[T]) -> T:
        """Run the work in the open transaction, or let its statement open one."""
        found = self._connection
        if callable(found):  # a scoped session
            found = found()
        connection = found if hasattr(found, "exec_driver_sql") else await found.connection()
        if connection.closed:
            raise refusals.closed(self.kind)
        answer: T = await connection.run_sync(_on_connection, work, self.kind)
        return answer


class Django:
    """Django's `connection`, or one of `connections`."""

    is_async = False
    kind = "Django connection"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def perform(self, work: CallerWork[T]) -> T:
        """Run the work in the open transaction."""
        connection = self._connection
        engine = {"postgresql": "Postgres", "sqlite": "SQLite"}.get(connection.vendor, connection.vendor)
        _check_engine(engine, work, self.kind)
        if connection.closed_in_transaction:
            raise refusals.closed(self.kind)
        if connection.needs_rollback:
            raise refusals.failed(self.kind)
        connection.ensure_connection()
        if not connection.in_atomic_block and connection.get_autocommit():
            raise refusals.no_transaction(self.kind, "write with transaction.atomic()")
        if isinstance(work, SqliteWork):
            return work.on(connection.connection, connection.connection, self.kind)
        with connection.cursor() as cursor:
            cursor.execute(work.sql(lambda _: "%s"), work.args)
            return work.read(cursor.fetchone()[0])


def _on_connection(connection: Any, work: CallerWork[T], kind: str) -> T:
    name = connection.dialect.name
    _check_engine({"postgresql": "Postgres", "sqlite": "SQLite"}.get(name, name), work, kind)
    if connection.closed:
        raise refusals.closed(kind)
    level = connection.get_execution_options().get("isolation_level")
    if (level or getattr(connection.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT":
        raise refusals.no_transaction(kind, 'use one without isolation_level="AUTOCOMMIT"')
    text = sys.modules["sqlalchemy"].text
    if isinstance(work, SqliteWork):
        connection.execute(text("select 1"))  # SQLAlchemy's own transaction begins with the first statement
        lent = connection.connection
        return work.on(lent.dbapi_connection, lent.driver_connection, kind)
    named = {f"a{place}": value for place, value in enumerate(work.args, 1)}
    return work.read(connection.execute(text(work.sql(lambda place: f":a{place}")), named).scalar_one())


def _check_engine(engine: str, work: CallerWork[T], kind: str) -> None:
    wanted = "SQLite" if isinstance(work, SqliteWork) else "Postgres"
    if engine != wanted:
        raise refusals.other_engine(kind, engine, f"SQLite ({work.path})" if isinstance(work, SqliteWork) else wanted)
