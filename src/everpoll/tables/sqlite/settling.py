"""Settling in an SQLite file: a batch in one transaction. See `tables/settling.py`.

Rows of one claim that end alike share a statement; each result is a statement of its own.
"""

import sqlite3
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import LEASE_LIMIT
from everpoll.tables.claims import Claim, grouped, last_claims
from everpoll.tables.settling import Settled, lost_of
from everpoll.tables.sqlite.instants import now_us
from everpoll.tables.sqlite.statements import Sql, Statements


def settle(con: Connection, statements: Statements, batch: Sequence[Settled]) -> set[int]:
    """Write the batch; return the numbers of the claims that were lost."""
    now = now_us()
    lost: set[int] = set()
    for group in grouped(batch, _alike):
        # A claim is never larger than this, but the caller may have put several together.
        for at in range(0, len(group), LEASE_LIMIT):
            part = group[at : at + LEASE_LIMIT]
            lost |= lost_of(part, (key for (key,) in answered(con, statements.settle(part, now))))
    return lost


def lost_claims(con: Connection, statements: Statements, claims: Mapping[int, Claim]) -> frozenset[int]:
    """Return the claims whose rows another program has changed."""
    last = last_claims(claims.items())
    held = (last[key] for sql in statements.holds(claims.values()) for (key,) in answered(con, sql))
    return frozenset(claims).difference(held)


def answered(con: Connection, sql: Sql) -> list[Any]:
    """Run a statement; return all rows of its answer."""
    return con.execute(*sql).fetchall()


def read_rows(con: Connection, sql: Sql) -> list[Any]:
    """Run a query; a text of the user's that is not UTF-8 is read as bytes, so that its row stops no other."""
    try:
        return answered(con, sql)
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error):
            raise
    con.text_factory = _text_or_bytes
    try:
        return answered(con, sql)
    finally:
        con.text_factory = str


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _alike(one: Settled) -> Hashable:
    own = one.number if one.write.results else None
    return one.claim.worker, one.claim.started_at, own, one.pattern, one.write.error, one.write.delay_s
