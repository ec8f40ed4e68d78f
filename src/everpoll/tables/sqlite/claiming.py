"""Claiming: look for the best rows, and take them, in one transaction.

Promises: SQLite lets one transaction write at a time, and a claim reads and writes inside of one (`begin immediate`).
So nothing can come between the look and the write, and all guards promise the same here: `skip_locked` has no locks to
skip, `status` holds by itself, `version` and `timestamp` are raised for the sake of others, who may guard their own
changes with them. A look that finds nothing writes nothing and takes no lock. A claim whose answer got lost (the file
was moved away in that moment, the caller was canceled) is a doubt: the next look first hands its rows back, if it was
committed; its start tells them from all others. A row that the table refuses to have claimed does not hold up
the others: it is found one by one, and left alone for a while.
"""

import secrets
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.claims import Claim
from everpoll.tables.refusals import Refusals
from everpoll.tables.sqlite.instants import Kind, Starts, now_us, read_us, stored
from everpoll.tables.sqlite.statements import Statements, bound_keys


class Picked(NamedTuple):
    """A row that was claimed."""

    claim: Claim
    attempt: int
    values: dict[str, Any]


class Start(NamedTuple):
    """What the rows of one claim have in common."""

    worker: str
    started: Any


class Look:
    """One look: who looks, for how many, and the claims that it may have made."""

    def __init__(self, label: str, limit: int) -> None:
        self.label = label
        self.limit = limit
        self.begun: list[Start] = []
        """More than one, where a group of operations had to be begun anew."""


class Found(NamedTuple):
    """What a look brought."""

    picked: list[Picked]
    next_due_s: float | None


def peek(con: Connection, statements: Statements) -> Found | None:
    """The answer, where nothing is ready; None: there may be something to claim."""
    ready, next_due = peeked(con, statements)
    return None if ready else Found([], _until_s(next_due, now_us()))


def peeked(con: Connection, statements: Statements) -> tuple[Any, Any]:
    """Whether a row is ready, and the next due time as the column holds it; None: there is none."""
    ready, next_due = con.execute(statements.peek, _bound_due(statements, now_us())).fetchone()
    return ready, next_due


def claim(con: Connection, statements: Statements, starts: Starts, look: Look, refusals: Refusals) -> Found:
    """Claim the best rows."""
    now = now_us()
    due = _bound_due(statements, now)
    refused = refusals.known()
    bound = {**due, "limit": look.limit + len(refused)}
    rows = con.execute(statements.pick, bound).fetchall() if look.limit > 0 else []
    rows = [row for row in rows if row[0] not in refused][: look.limit] if refused else rows
    picked = _taken(con, statements, starts.next_us(), look, rows, refusals) if rows else []
    if len(rows) >= look.limit or statements.next_due is None:
        return Found(picked, None)
    found = con.execute(statements.next_due, due).fetchone()
    return Found(picked, None if found is None else _until_s(found[0], now))


def _taken(
    con: Connection,
    statements: Statements,
    start_us: int,
    look: Look,
    rows: list[tuple[Any, ...]],
    refusals: Refusals,
) -> list[Picked]:
    kind = statements.kinds["started_at"]
    # In whole seconds two claims of a row may have the same start: then the name must differ.
    worker = f"{look.label}:{secrets.token_hex(4)}" if kind is Kind.WHOLE else look.label
    start = Start(worker, stored(kind, start_us))
    look.begun.append(start)
    bound = {**start._asdict(), **instants(statements, start_us)}
    keys = [row[0] for row in rows]
    try:
        claimed = _changed(con, statements, bound, keys)
    except sqlite3.IntegrityError:
        if not con.in_transaction:
            raise
        recover(con, statements, [start])  # raise(fail) leaves what it had done before
        claimed = _changed_singly(con, statements, bound, keys, refusals)
    counts = statements.table.retries is not None
    return [
        Picked(
            Claim(row[0], *start),
            int(row[1] or 0) + 1 if counts else 1,
            statements.read_values(row[2 if counts else 1 :]),
        )
        for row in rows
        if row[0] in claimed
    ]


def _changed(con: Connection, statements: Statements, bound: dict[str, Any], keys: list[Any]) -> set[Any]:
    places = bound_keys(keys)
    return {key for (key,) in con.execute(statements.claim(len(places)), {**bound, **places}).fetchall()}


def _changed_singly(
    con: Connection, statements: Statements, bound: dict[str, Any], keys: list[Any], refusals: Refusals
) -> set[Any]:
    """Each for itself. An error only where there was nothing else: the poller counts it, and rests."""
    claimed: set[Any] = set()
    refused: list[sqlite3.IntegrityError] = []
    for key in keys:
        try:
            claimed |= _changed(con, statements, bound, [key])
        except sqlite3.IntegrityError as error:
            refusals.add(key, error)
            refused.append(error)
            if not con.in_transaction:
                raise
    if refused and not claimed:
        raise refused[0]
    return claimed


def recover(con: Connection, statements: Statements, doubts: Iterable[Start]) -> None:
    """Hand back what was claimed without an answer."""
    for start in doubts:
        con.execute(statements.recover, {**start._asdict(), **instants(statements, now_us())})


def instants(statements: Statements, instant_us: int) -> dict[str, Any]:
    """One instant, as each of the columns holds it that everpoll writes, by role."""
    roles = ("started_at", "heartbeat", "finished_at", "updated_at")
    return {role: stored(statements.kinds[role], instant_us) for role in roles if role in statements.kinds}


def _bound_due(statements: Statements, now: int) -> dict[str, Any]:
    if "due_at" not in statements.kinds:
        return {}
    written = stored(statements.kinds["due_at"], now)
    if not isinstance(written, str):
        return {"now": written}
    return {"now": written, "now_t": written.replace(" ", "T"), "today_t": f"{written[:10]}T"}


def _until_s(due: Any, now: int) -> float | None:
    due_us = read_us(due)
    # One that is not UTC may have come by the clock and not yet by its text: nothing to wait for in between.
    return None if due_us is None or due_us <= now else (due_us - now) / 1e6
