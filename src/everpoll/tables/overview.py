"""What people ask about an adopted table: rows by status, the workers that hold rows, and the state of one row.

Promises: reads only, and no more than `COUNT_LIMIT` rows of a status and `HELD_LIMIT` running rows, however large the
table is. Each database brings the rows; see `Reader`.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from everpoll.tables.mapping import Table

COUNT_LIMIT = 10_000
HELD_LIMIT = 1_000
STATE_ROLES = ("status", "worker", "started_at", "finished_at", "heartbeat", "due_at", "retries", "error")
"""The columns of a `RowState`, where they are mapped, in its order."""
INSTANT_ROLES = frozenset({"started_at", "finished_at", "heartbeat", "due_at"})


class StatusCount(Struct, frozen=True, kw_only=True):
    """How many rows have one of the mapping's statuses."""

    status: str
    rows: int | None
    """None: not counted, because no index leads to rows with this status and the table is large."""
    is_capped: bool = False
    """True: there are more than `rows`."""


class TableWorker(Struct, frozen=True, kw_only=True):
    """A worker that holds rows of a table, as the rows show it."""

    table: str
    label: str
    running: int
    started_at: datetime | None
    """When it claimed the oldest row that it holds."""
    beat_at: datetime | None
    """Its last heartbeat; None: the mapping names no heartbeat column."""
    is_alive: bool | None
    """Whether that heartbeat is younger than `stale_after`; None: unknown, without a heartbeat column."""


class RowState(Struct, frozen=True):
    """One row, as it stands in the table; fields whose column is not mapped are None."""

    now: datetime
    """By the clock that the table's instants are written by."""
    status: str | None = None
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    heartbeat: datetime | None = None
    due_at: datetime | None = None
    retries: int | None = None
    error: str | None = None


class Reader(Protocol):
    """What a database must read for people."""

    async def now(self) -> datetime:
        """Return the time, by the clock that the table's instants are written by."""
        ...

    async def count(self, word: str) -> StatusCount:
        """Count the rows with this status."""
        ...

    async def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> list[dict[str, Any]]:
        """Return rows whose column for `role` has this value, by roles: instants in UTC, retries as int, else texts.

        A text that the key's type does not take is the key of no row.
        """
        ...


def counted(status: str, rows: int, limit: int = COUNT_LIMIT) -> StatusCount:
    """Return the count of a status, where counting stopped at one more than the limit."""
    return StatusCount(status=status, rows=min(rows, limit), is_capped=rows > limit)


async def workers(reader: Reader, table: Table) -> list[TableWorker]:
    """Return the workers that hold rows, by label."""
    roles = [role for role in ("worker", "started_at", "heartbeat") if role in table.used]
    now = await reader.now()
    rows = await reader.select(roles, "status", table.running, HELD_LIMIT)
    by_label: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_label[row["worker"] or "?"].append(row)
    return [_table_worker(table, label, by_label[label], now) for label in sorted(by_label)]


async def row_state(reader: Reader, table: Table, key: str) -> RowState | None:
    """Return the row with this key; None: there is none."""
    roles = [role for role in STATE_ROLES if role in table.used]
    now = await reader.now()
    rows = await reader.select(roles, "key", key, 1)
    return RowState(now, **rows[0]) if rows else None


def _table_worker(table: Table, label: str, rows: list[dict[str, Any]], now: datetime) -> TableWorker:
    started = [row["started_at"] for row in rows if row["started_at"] is not None]
    # A row that was claimed without a heartbeat is as old as its start.
    beats = [at for row in rows if (at := row.get("heartbeat") or row["started_at"]) is not None]
    has_beats = table.heartbeat is not None and bool(beats)
    return TableWorker(
        table=table.name,
        label=label,
        running=len(rows),
        started_at=min(started, default=None),
        beat_at=max(beats) if has_beats else None,
        is_alive=(now - max(beats)).total_seconds() < table.stale_after_s if has_beats else None,
    )
