"""Claims in an SQLite file: the look and the write, in one transaction. See `tables/claiming.py`.

Promises: SQLite lets one transaction write at a time, and a claim reads and writes inside of one (`begin immediate`).
So nothing can happen between the look and the write, and all guards promise the same here. There are no locks for
`skip_locked` to skip; `version` and `timestamp` are written for other programs, which may guard their own changes with
them. A look that finds nothing writes nothing and takes no lock. A claim whose answer got lost (the file was moved
away, the caller was canceled) is a doubt: if it was committed, the next look first hands back its rows, which it
recognizes by their start.
"""

import math
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.claiming import Claimed, Claiming, Found
from everpoll.tables.claims import Claim
from everpoll.tables.sqlite.instants import Kind, Starts, now_us, read_us, stored
from everpoll.tables.sqlite.settling import read_rows
from everpoll.tables.sqlite.statements import Statements
from everpoll.tables.statements import Values


class SqliteClaiming(Claiming):
    """One claim, in a transaction. `begun`: gets what may have been claimed, without keys."""

    has_rivals = False
    tried: Sequence[Values] = ()
    """The rows that it last wanted to claim."""

    def __init__(self, con: Connection, statements: Statements, starts: Starts, begun: list[Claim]) -> None:
        self._con = con
        self._statements = statements
        self._starts = starts
        self._begun = begun

    def is_refusal(self, error: Exception) -> bool:
        """See `Claiming`. Where a trigger has ended the whole transaction, nothing more can be tried in it."""
        return isinstance(error, sqlite3.IntegrityError) and self._con.in_transaction

    async def look(self, most: int) -> list[Values]:
        """See `Claiming`."""
        return read_rows(self._con, self._statements.poll(most))

    async def take(self, worker: str, rows: Sequence[Values]) -> list[Claimed]:
        """See `Claiming`."""
        self.tried, start_us = rows, self._starts.next_us()
        kind = self._statements.kinds["started_at"]
        # In whole seconds two claims of a row may have the same start: then the name must differ.
        name = f"{worker}:{secrets.token_hex(4)}" if kind is Kind.WHOLE else worker
        whole = Claim(None, name, stored(kind, start_us))
        self._begun.append(whole)
        try:
            answer = self._con.execute(*self._statements.claim(name, start_us, [row[0] for row in rows]))
            claimed = {key for (key,) in answer.fetchall()}
        except sqlite3.IntegrityError:
            if self._con.in_transaction:
                recover(self._con, self._statements, [whole])  # raise(fail) leaves what it had done before
            raise
        return [self._claimed(whole, row) for row in rows if row[0] in claimed]

    def _claimed(self, whole: Claim, row: Values) -> Claimed:
        key, *values = row
        retries = 0 if self._statements.table.retries is None else values.pop(0)
        # A column of numbers may hold a text all the same; SQLite itself counts on from 0 then.
        failed = int(retries) if isinstance(retries, (int, float)) and math.isfinite(retries) else 0
        return Claimed(replace(whole, key=key), failed + 1, self._statements.read(values))

    async def waits(self) -> tuple[bool, float | None]:
        """See `Claiming`. In a transaction no row is locked by others: one that is due was refused."""
        return False, until_s(peeked(self._con, self._statements)[1])


def peek(con: Connection, statements: Statements) -> Found | None:
    """Look without a lock: return an empty result if no row is ready; None: there may be something to claim."""
    ready, next_due = peeked(con, statements)
    return None if ready else Found([], until_s(next_due))


def peeked(con: Connection, statements: Statements) -> tuple[Any, Any]:
    """Read whether a row is ready, and the next due time as its column holds it; None: there is none."""
    ready, next_due = con.execute(*statements.peek()).fetchone()
    return ready, next_due


def recover(con: Connection, statements: Statements, doubts: Iterable[Claim]) -> None:
    """Hand back what was claimed without an answer."""
    for claim in doubts:
        con.execute(*statements.recover(claim))


def until_s(due: Any) -> float | None:
    """Return the seconds until a due time that is given as its column holds it."""
    due_us, now = read_us(due), now_us()
    # One that is not UTC may have come by the clock and not yet by its text: nothing to wait for in between.
    return None if due_us is None or due_us <= now else (due_us - now) / 1e6
