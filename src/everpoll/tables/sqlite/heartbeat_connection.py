"""The heartbeat in an SQLite file: one transaction for each beat, on a connection of its own.

See `tables/heartbeat_connection.py`.

Every beat takes the write lock, even with nothing to write, which costs next to nothing. A worker that never asked for
the lock would not notice that another program holds it, and would declare silent workers dead.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.own_connection import OwnConnection
from everpoll.tables.heartbeat_connection import Beats
from everpoll.tables.sqlite.statements import Sql, Statements
from everpoll.tables.statements import Values


class SqliteBeats(Beats[Sql]):
    """A connection of its own, in the heartbeat's thread."""

    def __init__(self, statements: Statements, address: SqliteAddress, patience_s: float) -> None:
        super().__init__(statements)
        self._connection = OwnConnection(address, patience_s)
        self._patience_s = patience_s
        self._con: Connection

    @contextmanager
    def session(self) -> Iterator[None]:
        """See `Beats`."""
        with self._connection.transaction() as self._con:
            yield

    def is_refusal(self, error: Exception) -> bool:
        """See `Beats`."""
        return isinstance(error, sqlite3.IntegrityError)

    def run(self, statements: Iterable[Sql]) -> list[Values]:
        """See `Beats`. A trigger may end the transaction; what the beat wrote before is left to the next one."""
        try:
            return [row for sql in statements for row in self._con.execute(*sql).fetchall()]
        except sqlite3.IntegrityError:
            if not self._con.in_transaction:
                self._con.begin(self._patience_s)
            raise

    def close(self) -> None:
        """See `Beats`."""
        self._connection.close()
