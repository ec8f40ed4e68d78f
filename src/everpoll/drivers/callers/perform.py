"""Finds the driver of a caller's connection, and runs everpoll's statements through it.

Promises: a connection of the wrong kind is refused before anything is sent, and the error says what to write.
"""

from typing import Any, NoReturn, TypeVar

from everpoll.drivers.callers import refusals
from everpoll.drivers.callers.frameworks import AsyncSqlAlchemy, Django, SqlAlchemy
from everpoll.drivers.callers.plain_drivers import Asyncpg, AsyncPsycopg, Psycopg, Sqlite3
from everpoll.drivers.callers.work import CallerWork
from everpoll.errors import BadInput
from everpoll.policy import shown

T = TypeVar("T")

# By the package of a class and its name: what a program has not imported is not imported here.
KINDS: dict[tuple[str, str], Any] = {
    ("asyncpg", "Connection"): Asyncpg,
    ("asyncpg", "PoolConnectionProxy"): Asyncpg,
    ("psycopg", "Connection"): Psycopg,
    ("psycopg", "AsyncConnection"): AsyncPsycopg,
    ("sqlalchemy", "Connection"): SqlAlchemy,
    ("sqlalchemy", "Session"): SqlAlchemy,
    ("sqlalchemy", "scoped_session"): SqlAlchemy,
    ("sqlalchemy", "AsyncConnection"): AsyncSqlAlchemy,
    ("sqlalchemy", "AsyncSession"): AsyncSqlAlchemy,
    ("sqlalchemy", "async_scoped_session"): AsyncSqlAlchemy,
    ("django", "BaseDatabaseWrapper"): Django,
    ("django", "ConnectionProxy"): Django,
    ("sqlite3", "Connection"): Sqlite3,
}
ACCEPTED = "pass one of asyncpg, psycopg 3 or sqlite3, a Connection or Session of SQLAlchemy 2, or Django's"


def check_kind(connection: object, *, is_async: bool, instead: str) -> Any:
    """Return the driver of the connection; raise `BadInput` for an unknown driver or the wrong kind of call."""
    for one in type(connection).__mro__:
        kind = KINDS.get((one.__module__.partition(".")[0], one.__name__))
        if kind is not None:
            if kind.is_async is not is_async:
                what = "asynchronous" if kind.is_async else "synchronous"
                raise BadInput(f"connection=: this {kind.kind} is {what}: use {instead}")
            return kind(connection)
    raise BadInput(f"connection={shown(connection)} is not a connection that everpoll knows: {ACCEPTED}")


def perform(connection: object, work: CallerWork[T], instead: str) -> T:
    """Run the work through a synchronous connection; `instead` is what to write for an asynchronous one."""
    kind = check_kind(connection, is_async=False, instead=instead)
    try:
        answer: T = kind.perform(work)
    except Exception as error:  # noqa: BLE001 - it is raised again
        _raise(error, kind.kind)
    return answer


async def perform_async(connection: object, work: CallerWork[T], instead: str) -> T:
    """Run the work through an asynchronous connection; `instead` is what to write for a synchronous one."""
    kind = check_kind(connection, is_async=True, instead=instead)
    try:
        answer: T = await kind.perform(work)
    except Exception as error:  # noqa: BLE001 - it is raised again
        _raise(error, kind.kind)
    return answer


def _raise(error: Exception, kind: str) -> NoReturn:
    meant = refusals.meant(error, kind)
    if meant is None or meant is error:
        raise error
    raise meant from error
