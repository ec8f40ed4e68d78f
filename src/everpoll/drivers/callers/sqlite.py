"""The file, through a connection of the caller: from `sqlite3`, or inside SQLAlchemy or Django.

Promises: the statements run in the caller's transaction. If none is open and the connection would begin one itself, one
is begun for writing. The caller's row and text factories stay as they are. A lost lease rolls the transaction back: it
must not be committed, and SQLite has no state of a failed transaction.
"""

import sqlite3
from pathlib import Path
from typing import Any, TypeVar

from everpoll.drivers.callers import refusals
from everpoll.drivers.callers.work import OtherDatabase, SqliteWork
from everpoll.drivers.sqlite.faults import BUSY, code_of
from everpoll.errors import EverpollError, LeaseLost, StoreUnavailable

T = TypeVar("T")


class PlainRows:
    """A caller's connection for the store's functions: only `execute`, with rows as tuples."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Run one statement; return its cursor."""
        cursor = self._connection.cursor()
        if isinstance(cursor, sqlite3.Cursor):
            cursor.row_factory = None
        cursor.execute(sql, parameters)
        return cursor


def run(connection: Any, driver: Any, work: SqliteWork[T], kind: str) -> T:
    """Run the work. `driver` is the driver's own connection, which knows whether a transaction is open."""
    plain = PlainRows(connection)
    texts = getattr(driver, "text_factory", str)
    try:
        if texts is not str:
            driver.text_factory = str
        _check_file(plain, work.path, kind)
        if not driver.in_transaction:
            if driver.isolation_level is None or getattr(driver, "autocommit", -1) is True:
                raise refusals.no_transaction(kind, "write connection.execute('begin immediate') first")
            plain.execute("begin immediate")
        return work.run(plain)
    except LeaseLost:
        plain.execute("rollback")
        raise
    except sqlite3.ProgrammingError as error:
        if "closed" in str(error):
            raise refusals.closed(kind) from error
        raise
    except sqlite3.OperationalError as error:
        if (meant := _meant(error, work.path, kind)) is None:
            raise
        raise meant from error
    finally:
        if texts is not str:
            driver.text_factory = texts


def _meant(error: sqlite3.OperationalError, path: Path, kind: str) -> EverpollError | None:
    """Return the error to raise in place of this one; None to raise this one."""
    if code_of(error) == sqlite3.SQLITE_READONLY:
        return refusals.read_only(kind)
    if code_of(error) not in BUSY:
        return None
    return StoreUnavailable(
        f"{path}: another connection is writing, or has written since this transaction read ({error}): roll it back "
        "and try again; `begin immediate` waits at the beginning"
    )


def _check_file(plain: PlainRows, path: Path, kind: str) -> None:
    files = [file for _, name, file in plain.execute("pragma database_list").fetchall() if name == "main"]
    found = files[0] if files else ""
    if not found or not path.exists() or not path.samefile(found):
        there = found or "a database in memory"
        raise OtherDatabase(f"connection=: this {kind} has {there} open, and the tasks of this app are in {path}")
