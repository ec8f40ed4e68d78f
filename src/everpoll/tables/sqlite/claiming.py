"""Claiming: look for the best rows, and take them, in one transaction.

Promises: SQLite lets one transaction write at a time, and a claim reads and writes inside of one (`begin immediate`).
So nothing can come between the look and the write, and all guards promise the same here: `skip_locked` has no locks to
skip, `status` holds by itself, `version` and `timestamp` are raised for the sake of others, who may guard their own
changes with them. A look that finds nothing writes nothing and takes no lock. A claim whose answer got lost (the file
was moved away in that moment, the caller was canceled) is a doubt: the next look first gives its rows back, if it was
committed; its start tells them from all others.
"""

import secrets
from collections.abc import Iterable
from typing import Any, NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.claims import Claim
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
    now = now_us()
    ready, next_due = con.execute(statements.peek, _bound_due(statements, now)).fetchone()
    return None if ready else Found([], _until_s(next_due, now))


def claim(con: Connection, statements: Statements, starts: Starts, look: Look) -> Found:
    """Claim the best rows."""
    now = now_us()
    due = _bound_due(statements, now)
    rows = con.execute(statements.pick, {**due, "limit": look.limit}).fetchall() if look.limit > 0 else []
    picked = _taken(con, statements, starts.next_us(), look, rows) if rows else []
    if len(rows) >= look.limit or statements.next_due is None:
        return Found(picked, None)
    found = con.execute(statements.next_due, due).fetchone()
    return Found(picked, None if found is None else _until_s(found[0], now))


def _taken(
    con: Connection, statements: Statements, start_us: int, look: Look, rows: list[tuple[Any, ...]]
) -> list[Picked]:
    kind = statements.kinds["started_at"]
    # In whole seconds two claims of a row may have the same start: then the name must differ.
    worker = f"{look.label}:{secrets.token_hex(4)}" if kind is Kind.WHOLE else look.label
    start = Start(worker, stored(kind, start_us))
    look.begun.append(start)
    keys = bound_keys([row[0] for row in rows])
    bound = {**start._asdict(), **instants(statements, start_us), **keys}
    claimed = {key for (key,) in con.execute(statements.claim(len(keys)), bound).fetchall()}
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


def recover(con: Connection, statements: Statements, doubts: Iterable[Start]) -> None:
    """Give back what was claimed without anybody knowing."""
    for start in doubts:
        con.execute(statements.recover, {**start._asdict(), **instants(statements, now_us())})


def instants(statements: Statements, instant_us: int) -> dict[str, Any]:
    """One instant, as each of the columns holds it that everpoll writes."""
    kinds, names = statements.kinds, {"heartbeat": "heartbeat", "finished_at": "finished", "updated_at": "updated"}
    return {name: stored(kinds[role], instant_us) for role, name in names.items() if role in kinds}


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
