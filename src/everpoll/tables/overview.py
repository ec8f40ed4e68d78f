"""What people ask about an adopted table: rows by status, the workers that hold rows, and the state of one row.

Promises: reads only, and no more than `COUNT_LIMIT` rows of a status and `HELD_LIMIT` running rows, however large the
table is.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Struct

from everpoll.tables.claims import grouped
from everpoll.tables.contract import StatusCount
from everpoll.tables.mapping import Table
from everpoll.tables.statements import INSTANT_ROLES, TableStatements, Values

S = TypeVar("S")

HELD_LIMIT = 1_000
STATE_ROLES = ("status", "worker", "started_at", "finished_at", "heartbeat", "due_at", "retries", "error")
"""The columns of a `RowState`, where they are mapped, in its order."""


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


class Reader(Struct, Generic[S]):
    """Reads one table."""

    statements: TableStatements[S]
    run: Callable[[S], Awaitable[Sequence[Values]]]
    now: datetime
    """By the clock that the table's instants are written by."""
    not_a_key: tuple[type[Exception], ...] = ()
    """Raised by `run` for a key that the key's type does not take."""

    async def count(self, word: str) -> StatusCount:
        """Count the rows with this status."""
        return self.statements.counted(word, await self.run(self.statements.count(word)))

    async def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> list[dict[str, Any]]:
        """Return rows whose column for `role` has this value, by roles: instants in UTC, retries as int, else texts."""
        try:
            rows = await self.run(self.statements.select(roles, role, value, limit))
        except self.not_a_key:
            return []
        return [{one: self._read(one, value) for one, value in zip(roles, row, strict=True)} for row in rows]

    def _read(self, role: str, value: Any) -> Any:
        if value is None or role == "retries":
            return value
        if role == "worker":
            return self.statements.read_worker(str(value))
        return self.statements.read_instant(value) if role in INSTANT_ROLES else str(value)


async def workers(reader: Reader[Any], table: Table) -> list[TableWorker]:
    """Return the workers that hold rows, by label."""
    roles = [role for role in ("worker", "started_at", "heartbeat") if role in table.used]
    rows = await reader.select(roles, "status", table.running, HELD_LIMIT)
    groups = grouped(rows, lambda row: row["worker"] or "?")
    return sorted((_table_worker(table, group, reader.now) for group in groups), key=lambda one: one.label)


async def row_state(reader: Reader[Any], table: Table, key: str) -> RowState | None:
    """Return the row with this key; None: there is none."""
    roles = [role for role in STATE_ROLES if role in table.used]
    rows = await reader.select(roles, "key", key, 1)
    return RowState(reader.now, **rows[0]) if rows else None


def _table_worker(table: Table, rows: list[dict[str, Any]], now: datetime) -> TableWorker:
    started = [row["started_at"] for row in rows if row["started_at"] is not None]
    # A row that was claimed without a heartbeat is as old as its start.
    beats = [at for row in rows if (at := row.get("heartbeat") or row["started_at"]) is not None]
    has_beats = table.heartbeat is not None and bool(beats)
    return TableWorker(
        table=table.name,
        label=rows[0]["worker"] or "?",
        running=len(rows),
        started_at=min(started, default=None),
        beat_at=max(beats) if has_beats else None,
        is_alive=(now - max(beats)).total_seconds() < table.stale_after_s if has_beats else None,
    )
