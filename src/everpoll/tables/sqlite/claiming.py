"""Claiming: look for the best rows, and take them, in one transaction.

Promises: SQLite lets one transaction write at a time, and a claim reads and writes inside of one (`begin immediate`).
So nothing can come between the look and the write, and all guards promise the same here: `skip_locked` has no locks to
skip, `status` holds by itself, `version` and `timestamp` are raised for the sake of others, who may guard their own
changes with them. A look that finds nothing writes nothing and takes no lock.
"""

import secrets
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


class Found(NamedTuple):
    """What a look brought."""

    picked: list[Picked]
    next_due_s: float | None


def peek(con: Connection, statements: Statements) -> Found | None:
    """The answer, where nothing is ready; None: there may be something to claim."""
    now = now_us()
    ready, next_due = con.execute(statements.peek, _bound_due(statements, now)).fetchone()
    return None if ready else Found([], _until_s(next_due, now))


def claim(con: Connection, statements: Statements, starts: Starts, label: str, limit: int) -> Found:
    """Claim the best rows, at most so many."""
    table = statements.table
    now = now_us()
    due = _bound_due(statements, now)
    rows = con.execute(statements.pick, {**due, "limit": limit}).fetchall() if limit > 0 else []
    picked: list[Picked] = []
    if rows:
        worker, started, bound = _mark(statements, starts.next_us(), label)
        keys = bound_keys([row[0] for row in rows])
        claimed = {key for (key,) in con.execute(statements.claim(len(keys)), {**bound, **keys}).fetchall()}
        first = 1 if table.retries is None else 2
        for row in rows:
            if row[0] in claimed:
                values = statements.read_values(row[first:])
                attempt = 1 if table.retries is None else int(row[1] or 0) + 1
                picked.append(Picked(Claim(row[0], worker, started), attempt, values))
    if len(rows) >= limit or statements.next_due is None:
        return Found(picked, None)
    found = con.execute(statements.next_due, due).fetchone()
    return Found(picked, None if found is None else _until_s(found[0], now))


def _mark(statements: Statements, start_us: int, label: str) -> tuple[str, Any, dict[str, Any]]:
    """Who claims, and since when: the fence, and what is bound."""
    kinds = statements.kinds
    # In whole seconds two claims of a row may have the same start: then the name must differ.
    worker = f"{label}:{secrets.token_hex(4)}" if kinds["started_at"] is Kind.WHOLE else label
    started = stored(kinds["started_at"], start_us)
    bound = {"worker": worker, "started": started, **instants(statements, start_us)}
    return worker, started, bound


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
    return None if due_us is None else (due_us - now) / 1e6
