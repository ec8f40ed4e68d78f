"""The statements about one table: which there are, in every database, and the SQL that they share.

In SQL identifiers are quoted; words of the status are literals, so that a partial index on them serves; all else is a
parameter. The fence of a claimed row stands in every later write: its key, `running`, its worker and its start.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

from everpoll.tables.changes import Change, Changes, Plus, RuntimeValue, Value, queue_order
from everpoll.tables.claims import Claim
from everpoll.tables.contract import StatusCount
from everpoll.tables.mapping import Table
from everpoll.tables.outcome import lost_text
from everpoll.tables.shape import Column, Shape
from everpoll.tables.sql_names import identifier, literal

S = TypeVar("S")

Values = Sequence[Any]
"""A row of an answer; the key comes first."""


COUNT_LIMIT = 10_000
INSTANT_ROLES = frozenset({"started_at", "finished_at", "heartbeat", "due_at"})
"""Roles of columns that people are shown as instants."""


def decoded(value: Any) -> Any:
    """Decode JSON; what Python cannot read stays as it is: one such row must not keep others from being claimed."""
    try:
        return msgspec.json.decode(value) if isinstance(value, (str, bytes)) else value
    except (msgspec.DecodeError, RecursionError):
        return value


class TableStatements(ABC, Generic[S]):
    """Statements with their values, ready to run: SQL, or requests."""

    @abstractmethod
    def beats(self, claims: Sequence[Claim]) -> Iterable[S]:
        """Write a heartbeat into the rows of claims that still hold, and read them.

        A heartbeat does not count as a change of the row: its version and time of change stay.
        """

    @abstractmethod
    def holds(self, claims: Iterable[Claim]) -> Iterable[S]:
        """Read the rows of claims that still hold."""

    @abstractmethod
    def states(self, keys: Sequence[Any]) -> Iterable[S]:
        """Read status, worker and start of these rows, as they are now."""

    @abstractmethod
    def stale(self, limit: int) -> Iterable[S]:
        """Read running rows without a heartbeat for too long. One without any heartbeat is as old as its start."""

    @abstractmethod
    def rescues(self, rows: Sequence[Values] | None = None) -> Iterable[S]:
        """Take back rows that are stale, or those of these that still are; read the statuses that they have now."""

    @abstractmethod
    def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> S:
        """Read these columns of rows whose column for `role` has this value, which is given as text."""

    @abstractmethod
    def count(self, word: str) -> S:
        """Count the rows with this status, up to one more than the limit."""

    def counted(self, word: str, rows: Sequence[Values]) -> StatusCount:
        """Read the answer of `count`; None in it: not counted."""
        found: int | None = rows[0][0]
        if found is None:
            return StatusCount(status=word, rows=None)
        return StatusCount(status=word, rows=min(found, COUNT_LIMIT), is_capped=found > COUNT_LIMIT)

    def read_worker(self, value: str) -> str:
        """Read the label of a worker from what its claims have written."""
        return value

    def read_instant(self, value: Any) -> datetime | None:
        """Read an instant from an answer, in UTC."""
        instant: datetime = value
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant  # infinite ones of Postgres have none


class Phrases(ABC):
    """Phrases of SQL about one table, by the roles of its columns. A dialect adds quoting, parameters, time, locks."""

    name: str
    """The table, in `from` and `update`."""
    prefix = "t."
    """Of columns in an expression."""

    def __init__(self, table: Table, shape: Shape[Column]) -> None:
        self.table = table
        self.changes = Changes(table, shape.is_required)
        self.key = self.at("key")

    def at(self, role: str) -> str:
        """Write the column of this role, in an expression."""
        return self.named(self.table.used[role])

    def named(self, name: str) -> str:
        """Write any column by its name, in an expression."""
        return self.prefix + self.quoted(name)

    @abstractmethod
    def given(self, role: str, value: RuntimeValue) -> str:
        """Write a value that is known only when the statement runs, as that column takes it."""

    def quoted(self, name: str) -> str:
        """Write the name of a column that is set."""
        return identifier(name)

    def literal(self, text: str) -> str:
        """Write a text."""
        return literal(text)

    def word(self, text: str) -> str:
        """Write a status."""
        return self.literal(text)

    def text(self, role: str) -> str:
        """Write the column of this role, as a text."""
        return self.at(role)

    def error(self, text: str) -> str:
        """Cut a text to what the error column holds."""
        return text

    def has_status(self, word: str) -> str:
        """Write a condition by which rows are found."""
        return f"{self.at('status')} = {self.word(word)}"

    def few(self, condition: str) -> str:
        """Write a query that counts rows, and stops at one more than the limit."""
        return f"select count(*) from (select 1 from {self.name} where {condition} limit {COUNT_LIMIT + 1}) as few"  # noqa: S608 - names and words are quoted

    def instant(self, role: str) -> str:
        """Write the column of this role, as an instant."""
        return self.at(role)

    @property
    def is_ready(self) -> str:
        """A condition by which rows are found that wait and are due, by the database's clock."""
        return self.has_status(self.table.queued) + self.and_is_due

    @property
    def and_is_due(self) -> str:
        """The second part of it; nothing where rows have no due time."""
        if self.table.due_at is None:
            return ""
        return f" and ({self.at('due_at')} is null or {self.instant('due_at')} <= now())"

    @property
    def retries(self) -> str:
        """How many attempts of the row have failed."""
        return "0" if self.table.retries is None else f"coalesce({self.at('retries')}, 0)"

    def ordered(self, downwards: str = " desc") -> str:
        """Write the order of the queue."""
        order = queue_order(self.table)
        return ", ".join(self.named(name) + (downwards if is_down else "") for name, is_down in order.items())

    def sets(self, change: Change) -> str:
        """Write the assignments of a change."""
        return ", ".join(f"{self._target(role)} = {self.value(role, value)}" for role, value in change.items())

    def sets_either(self, condition: str, change: Change, otherwise: Change) -> str:
        """Write the one change or the other; what only one of them names stays as it is by the other."""
        sets = []
        for role in {**change, **otherwise}:
            both = [self.value(role, one[role]) if role in one else self.at(role) for one in (change, otherwise)]
            first, second = both
            value = first if first == second else f"case when {condition} then {first} else {second} end"
            sets.append(f"{self._target(role)} = {value}")
        return ", ".join(sets)

    @property
    def gives_back(self) -> str:
        """Assignments for rows of lost workers: they wait again, or have failed with their last attempt."""
        again = self.changes.lost(is_last=False)
        # Without a column to count in, a row never runs out of attempts: its worker's death is not its own failure.
        if self.table.retries is None:
            return self.sets(again)
        is_last = f"{self.retries} + 1 >= {self.table.attempts}"
        return self.sets_either(is_last, self.changes.lost(is_last=True), again)

    def value(self, role: str, value: Value) -> str:
        """Write a value, as that column takes it."""
        if value is None:
            return "null"
        if isinstance(value, str):
            return self.word(value) if role == "status" else self.literal(value)
        if isinstance(value, Plus):
            return f"coalesce({self.at(role)}, 0) + {value.number}"
        if value is RuntimeValue.LOST:
            return self.error(self._lost_text())
        return self.given(role, value)

    def _lost_text(self) -> str:
        text = f"'worker ' || coalesce({self.text('worker')}, '?') || {self.literal(lost_text(self.table))}"
        if self.table.retries is None:
            return text
        return f"{text} || ' (attempt ' || ({self.retries} + 1) || ' of {self.table.attempts})'"

    def _target(self, role: str) -> str:
        return self.quoted(self.table.used[role])
