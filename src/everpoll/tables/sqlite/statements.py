"""The statements about a table in an SQLite file, from the phrases that all databases share.

Names are quoted with backticks, which SQLite never takes for a text, as it does with a name in double quotes that it
does not know: a column that is dropped is an error, not a word. Values are bound by name, keys as `:k0`, `:k1`, …,
instants by the role of their column.
"""

# ruff: noqa: S608 - names and words are quoted, values are bound

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from everpoll.stores.contract import encode
from everpoll.tables.changes import Given, Pattern
from everpoll.tables.mapping import Table
from everpoll.tables.pulse import RESCUE_LIMIT
from everpoll.tables.sqlite.instants import Kind, kind_of
from everpoll.tables.sqlite.shape import FileShape
from everpoll.tables.statements import Phrases

TODAY = "between :today_t and :now_t"


def named(name: str) -> str:
    """Quote a name."""
    return "`" + name.replace("`", "``") + "`"


def word(text: str) -> str:
    """Quote a text."""
    return "'" + text.replace("'", "''") + "'"


class Statements(Phrases):
    """Everything that is ever asked of one table."""

    def __init__(self, table: Table, shape: FileShape) -> None:
        super().__init__(table, shape)
        self._shape = shape
        self.name = f"main.{named(table.parts[-1])}"
        self.key = self.at("key")
        self._queued, self._running = self.has_status(table.queued), self.has_status(table.running)
        self._fence = f"{self._running} and {self.at('worker')} = :worker and {self.at('started_at')} = :started"
        declared = {role: shape.column(name) for role, name in table.used.items()}
        self.kinds = {role: (kind_of(one.declared) if one else None) or Kind.TEXT for role, one in declared.items()}
        self._json = frozenset(name for name in (*table.columns, *table.results) if self._is_json(name))
        self.pick = self._pick()
        self.peek = self._peek()

    def at(self, role: str) -> str:
        """See `Phrases`."""
        return named(self.table.used[role])

    def named(self, name: str) -> str:
        """See `Phrases`."""
        return named(name)

    def quoted(self, name: str) -> str:
        """See `Phrases`."""
        return named(name)

    def literal(self, text: str) -> str:
        """See `Phrases`."""
        return word(text)

    def given(self, role: str, value: Given) -> str:
        """See `Phrases`."""
        if value is Given.RESULT:
            return f":r{self.table.results.index(self.table.used[role])}"
        return f":{role}" if value in {Given.NOW, Given.START} else f":{value.value}"

    def _is_json(self, column: str) -> bool:
        found = self._shape.column(column)
        return found is not None and found.declared.upper() in {"JSON", "JSONB"}

    def read_values(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the values of a row for its handler; JSON in a column that is declared as JSON is decoded."""
        read = zip(self.table.columns, values, strict=True)
        return {name: _decoded(value) if name in self._json else value for name, value in read}

    def written_values(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the handler returned as parameters: lists and dicts as JSON, and texts where JSON is declared."""
        return {
            f"r{self.table.results.index(name)}": encode(value) if self._as_json(name, value) else value
            for name, value in results.items()
        }

    def _as_json(self, name: str, value: Any) -> bool:
        return isinstance(value, (dict, list)) or (name in self._json and isinstance(value, (str, bool)))

    def _pick(self) -> str:
        read = [self.table.key, *([self.table.retries] if self.table.retries else []), *self.table.columns]
        columns = ", ".join(map(named, read))
        return f"select {columns} from {self.name} where {self._ready()} order by {self.ordered()} limit :limit"

    def _ready(self) -> str:
        """Return the condition of rows that wait and are due.

        The plus before the other columns keeps SQLite from their indexes: rows are found by their status.
        """
        conditions = [self._queued]
        if not self._shape.is_required(self.table.key):
            conditions.append(f"+{self.key} is not null")
        if self.table.due_at is not None:
            due = f"+{self.at('due_at')}"
            today = f" or {due} {TODAY}" if self._has_today else ""
            conditions.append(f"({due} is null or {due} <= :now{today})")
        return " and ".join(conditions)

    @property
    def _has_today(self) -> bool:
        """True if due times are texts, which may have a `T` or a space between date and time.

        `T` sorts behind a space, so instants of today are compared with a limit in their own form.
        """
        return self.kinds["due_at"] is Kind.TEXT

    def _peek(self) -> str:
        """Return the query whether a row is ready, and for the next due time. Each part ends at the first row of an
        index.
        """
        if self.table.due_at is None:
            return f"select exists (select 1 from {self.name} where {self._ready()}), null"
        due = self.at("due_at")
        rows = f"from {self.name} where {self._queued} and"
        today = f"or exists (select 1 {rows} {due} {TODAY})" if self._has_today else ""
        return (
            f"select exists (select 1 {rows} {due} is null) or exists (select 1 {rows} {due} <= :now) {today}, "
            f"({self.next_due})"
        )

    @property
    def next_due(self) -> str | None:
        """Reads the earliest due time in the future; None if the table has no such column."""
        if self.table.due_at is None:
            return None
        due = self.at("due_at")
        return f"select {due} from {self.name} where {self._queued} and {due} > :now order by {due} limit 1"

    def claim(self, keys: int) -> str:
        """Return the statement that claims these rows if they are still queued."""
        return self._update(self.sets(self.changes.claimed), self._queued, keys)

    def settle(self, pattern: Pattern, keys: int) -> str:
        """Return the statement that ends these rows, or lets them wait again, if this worker still holds them."""
        return self._update(self.sets(self.changes.settled(pattern)), self._fence, keys)

    @property
    def recover(self) -> str:
        """Queues every row of one claim again: its answer got lost, so no handler runs them."""
        return f"update {self.name} set {self.sets(self.changes.waiting)} where {self._fence}"

    def beat(self, keys: int) -> str:
        """Return the statement that writes a heartbeat; without a column for it, the one of `held`."""
        if self.table.heartbeat is None:
            return self.held(keys)
        return self._update(self.sets({"heartbeat": Given.NOW}), self._fence, keys)

    def held(self, keys: int) -> str:
        """Return the query which of these rows their claim still holds."""
        return f"select {self.key} from {self.name} where {self._fence} and {self._among(keys)}"

    def states(self, keys: int) -> str:
        """Return the query for these rows as they are now."""
        columns = ", ".join(map(self.at, ("key", "status", "worker", "started_at")))
        return f"select {columns} from {self.name} where {self._among(keys)}"

    def rescue(self, *, is_one: bool = False) -> str:
        """Return the statement that takes back rows without a heartbeat for too long; with `is_one`, only `:k0`."""
        which = f" and {self.key} = :k0" if is_one else ""
        return (
            f"update {self.name} set {self.gives_back} where {self._running} "
            f"and {self.key} in ({self.stale}{which} limit {RESCUE_LIMIT}) returning {self.key}, {self.at('status')}"
        )

    @property
    def stale(self) -> str:
        """Reads the keys of running rows without a heartbeat for too long; the caller adds a limit.

        A running row without any heartbeat, as other programs may leave it, is as old as its start.
        """
        beat, started = self.at("heartbeat"), self.at("started_at")
        is_stale = f"({beat} < :stale or ({beat} is null and {started} < :stale_start))"
        return f"select {self.key} from {self.name} where {self._running} and {is_stale}"

    def _update(self, sets: str, condition: str, keys: int) -> str:
        return f"update {self.name} set {sets} where {condition} and {self._among(keys)} returning {self.key}"

    def _among(self, keys: int) -> str:
        return f"{self.key} in ({_places(keys)})"


def _decoded(value: Any) -> Any:
    try:
        return msgspec.json.decode(value) if isinstance(value, (str, bytes)) else value
    except msgspec.DecodeError:
        return value


@functools.cache
def _places(keys: int) -> str:
    return ", ".join(f":k{place}" for place in range(keys))


def bound_keys(keys: Sequence[object]) -> dict[str, object]:
    """Return keys as parameters, the last one repeated up to a power of two, so that ten statements are enough."""
    size = 1 << (len(keys) - 1).bit_length()
    return {f"k{place}": keys[min(place, len(keys) - 1)] for place in range(size)}
