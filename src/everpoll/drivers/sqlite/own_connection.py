"""Connections outside of lanes: one for the blocking transactions of a thread, one for a short read of a file."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import Connection, connect
from everpoll.drivers.sqlite.faults import explained


class OwnConnection:
    """A thread's connection to a file; opened at the first transaction, and again after one that failed."""

    def __init__(self, address: SqliteAddress, patience_s: float) -> None:
        self._address = address
        self._patience_s = patience_s
        self._con: Connection | None = None
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction, committed at the end of the block.

        Raises `StoreUnavailable` when the file is locked for longer than the patience, or is not where it was.
        """
        with self._lock:
            try:
                if self._con is None:
                    self._con = connect(self._address, patience_s=self._patience_s, cache_kb=2_000)
                    self._con.execute("pragma busy_timeout = 0")  # begin() does the waiting
                self._con.begin(self._patience_s)
                yield self._con
                self._con.execute("commit")
                self._con.check_place()
            except Exception as error:
                self._close()
                explained_error = explained(error, self._address.path)
                if explained_error is error:
                    raise
                raise explained_error from error

    def close(self) -> None:
        """Close the connection. Repeatable."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            con.undo()
            con.close()


@contextmanager
def brief_connection(address: SqliteAddress, patience_s: float) -> Iterator[Connection]:
    """Open a connection for the length of a block; errors of SQLite in it are explained."""
    try:
        con = connect(address, patience_s=patience_s)
        try:
            yield con
        finally:
            con.close()
    except sqlite3.Error as error:
        raise explained(error, address.path, opening=True) from error
