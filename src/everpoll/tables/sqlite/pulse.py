"""The heartbeat in an SQLite file: one transaction for each beat, on a connection of its own. See `tables/pulse.py`.

Every beat takes the write lock, even with nothing to write, which costs next to nothing. A worker that never asked for
the lock would not notice that another program holds it, and would declare silent workers dead.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.own_connection import OwnConnection
from everpoll.tables.claims import Claim, by_fence
from everpoll.tables.sqlite.claiming import instants
from everpoll.tables.sqlite.instants import SECOND_US, now_us, stored
from everpoll.tables.sqlite.settling import fence, held_keys
from everpoll.tables.sqlite.statements import Statements, bound_keys


class SqliteBeats:
    """A connection of its own, in the heartbeat's thread."""

    def __init__(self, address: SqliteAddress, patience_s: float, statements: Statements) -> None:
        self._connection = OwnConnection(address, patience_s)
        self._statements = statements
        self._con: Connection

    @contextmanager
    def session(self) -> Iterator[None]:
        """See `BeatDatabase`."""
        with self._connection.transaction() as self._con:
            yield

    def is_refusal(self, error: Exception) -> bool:
        """See `BeatDatabase`. A trigger may end the whole transaction; then nothing more can be tried in it."""
        return isinstance(error, sqlite3.IntegrityError) and self._con.in_transaction

    def beat(self, claims: Sequence[Claim]) -> set[Any]:
        """See `BeatDatabase`."""
        heard: set[Any] = set()
        bound = instants(self._statements, now_us())
        for group in by_fence(claims):
            keys = bound_keys([claim.key for claim in group])
            rows = self._con.execute(self._statements.beat(len(keys)), {**bound, **fence(group[0]), **keys})
            heard |= {key for (key,) in rows.fetchall()}
        return heard

    def held(self, claims: Sequence[Claim]) -> set[Any]:
        """See `BeatDatabase`."""
        return held_keys(self._con, self._statements, claims)

    def stale(self, limit: int) -> dict[Any, Any]:
        """See `BeatDatabase`."""
        rows = self._con.execute(f"{self._statements.stale} limit {limit}", self._bound()).fetchall()
        return {key: key for (key,) in rows}

    def rescue(self, row: Any = None) -> list[tuple[Any, str]]:
        """See `BeatDatabase`."""
        sql = self._statements.rescue(is_one=row is not None)
        return self._con.execute(sql, {**self._bound(), "k0": row}).fetchall()

    def _bound(self) -> dict[str, Any]:
        statements, now = self._statements, now_us()
        stale_us = now - round(statements.table.stale_after_s * SECOND_US)
        return {
            "stale": stored(statements.kinds["heartbeat"], stale_us),
            "stale_start": stored(statements.kinds["started_at"], stale_us),
            **instants(statements, now),
        }

    def close(self) -> None:
        """See `BeatDatabase`."""
        self._connection.close()
