"""The statements for one table, made from its mapping and its shape.

Promises: every later write about a row carries its fence: key, status, worker and start. Names are quoted with
backticks, which SQLite never takes for a text, as it does with a name in double quotes that it does not know: a
column that is dropped is an error, not a word. Status words are literals, so that a partial index on them serves.
"""

# ruff: noqa: S608 - names and words are quoted, values are bound

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from everpoll.stores.contract import encode
from everpoll.tables.mapping import Table
from everpoll.tables.outcome import lost_text
from everpoll.tables.sqlite.instants import Kind, kind_of
from everpoll.tables.sqlite.shape import Shape

TODAY = "between :today_t and :now_t"
RESCUE_LIMIT = 1_000
"""Rows that one beat takes back; the next one takes the rest."""


def named(name: str) -> str:
    """A quoted name."""
    return "`" + name.replace("`", "``") + "`"


def word(text: str) -> str:
    """A quoted text."""
    return "'" + text.replace("'", "''") + "'"


class Statements:
    """Everything that is ever asked of one table. Values are bound by name, keys as `:k0`, `:k1`, …"""

    def __init__(self, table: Table, shape: Shape) -> None:
        self.table = table
        self._shape = shape
        self._where = f"main.{named(table.parts[-1])}"
        self._queued = f"{named(table.status)} = {word(table.queued)}"
        self._running = f"{named(table.status)} = {word(table.running)}"
        self._fence = f"{self._running} and {named(table.worker)} = :worker and {named(table.started_at)} = :started"
        self.kinds = {role: self._kind(column) for role, column in table.used.items()}
        self._json = frozenset(name for name in (*table.columns, *table.results) if self._is_json(name))
        self.pick = self._pick()
        self.peek = self._peek()
        self.rescue = self._rescue()
        self.rescue_one = self._rescue(f"and {named(table.key)} = :k0 ")
        self.stale = self._stale()

    def _kind(self, column: str) -> Kind:
        found = self._shape.column(column)
        return (None if found is None else kind_of(found.declared)) or Kind.TEXT

    def _is_json(self, column: str) -> bool:
        found = self._shape.column(column)
        return found is not None and found.declared.upper() in {"JSON", "JSONB"}

    def read_values(self, values: Sequence[Any]) -> dict[str, Any]:
        """What the handler reads; a column that is declared as JSON is decoded, if that is what it holds."""
        read = zip(self.table.columns, values, strict=True)
        return {name: _decoded(value) if name in self._json else value for name, value in read}

    def written_values(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """What the handler returned, to bind: `r0`, `r1`, …; as JSON what has parts, and what is declared as JSON."""
        return {
            f"r{place}": encode(value) if isinstance(value, (dict, list)) or self._is_text(name, value) else value
            for place, (name, value) in enumerate(results.items())
        }

    def _is_text(self, name: str, value: Any) -> bool:
        return name in self._json and isinstance(value, (str, bool))

    def _is_required(self, column: str) -> bool:
        found = self._shape.column(column)
        return found is not None and found.is_required

    def _error(self, value: str) -> list[str]:
        if self.table.error is None:
            return []
        value = f"coalesce({value}, '')" if self._is_required(self.table.error) else value
        return [f"{named(self.table.error)} = {value}"]

    def _touched(self) -> list[str]:
        """What a claim and all that becomes of it set, for those who guard their own changes with it."""
        table = self.table
        if table.guard == "version":
            return [_counted(table.version, "1")]
        return [f"{named(table.updated_at)} = :updated"] if table.guard == "timestamp" else []

    def _pick(self) -> str:
        table = self.table
        read = [table.key, *([table.retries] if table.retries else []), *table.columns]
        return (
            f"select {', '.join(map(named, read))} from {self._where} where {self._ready()} "
            f"order by {', '.join(self._order())} limit :limit"
        )

    def _ready(self) -> str:
        """Rows that wait and are due. Found by their status: the plus keeps SQLite from any index on the rest."""
        table = self.table
        conditions = [self._queued]
        if not self._is_required(table.key):
            conditions.append(f"+{named(table.key)} is not null")
        if table.due_at is not None:
            due = f"+{named(table.due_at)}"
            today = f" or {due} {TODAY}" if self._has_today else ""
            conditions.append(f"({due} is null or {due} <= :now{today})")
        return " and ".join(conditions)

    @property
    def _has_today(self) -> bool:
        """A `T` sorts behind a space: such an instant of today is compared with one that is written like it."""
        return self.kinds["due_at"] is Kind.TEXT

    def _order(self) -> list[str]:
        table = self.table
        priority = [] if table.priority is None else [f"{named(table.priority)} desc"]
        return [*priority, named(table.order_by), named(table.key)]

    def _peek(self) -> str:
        """Whether anything is ready, and the next due time. Each part ends at the first row of an index."""
        if self.table.due_at is None:
            return f"select exists (select 1 from {self._where} where {self._ready()}), null"
        due = named(self.table.due_at)
        rows = f"from {self._where} where {self._queued} and"
        today = f"or exists (select 1 {rows} {due} {TODAY})" if self._has_today else ""
        return (
            f"select exists (select 1 {rows} {due} is null) or exists (select 1 {rows} {due} <= :now) {today}, "
            f"(select {due} {rows} {due} > :now order by {due} limit 1)"
        )

    @property
    def next_due(self) -> str | None:
        """The earliest due time that has not come; None where there is no such column."""
        if self.table.due_at is None:
            return None
        due = named(self.table.due_at)
        return f"select {due} from {self._where} where {self._queued} and {due} > :now order by {due} limit 1"

    def claim(self, keys: int) -> str:
        """Take these rows, as far as they still are queued."""
        table = self.table
        sets = [
            f"{named(table.status)} = {word(table.running)}",
            f"{named(table.worker)} = :worker",
            f"{named(table.started_at)} = :started",
            *([] if table.heartbeat is None else [f"{named(table.heartbeat)} = :heartbeat"]),
            *self._touched(),
        ]
        return self._update(sets, self._queued, keys)

    def end(self, keys: int, results: tuple[str, ...] = ()) -> str:
        """These rows have ended."""
        table = self.table
        sets = [
            f"{named(table.status)} = :status",
            *([] if table.finished_at is None else [f"{named(table.finished_at)} = :finished"]),
            *self._error(":error"),
            *([] if table.retries is None else [_counted(table.retries, ":retries")]),
            *(f"{named(column)} = :r{place}" for place, column in enumerate(results)),
            *self._touched(),
        ]
        return self._update(sets, self._fence, keys)

    def again(self, keys: int, *, keeps_error: bool, is_delayed: bool) -> str:
        """These rows are queued again, without a worker."""
        table = self.table
        sets = [
            f"{named(table.status)} = {word(table.queued)}",
            *self._emptied(),
            *([] if keeps_error else self._error(":error")),
            *([] if table.retries is None else [_counted(table.retries, ":retries")]),
            *([f"{named(table.due_at)} = :due"] if is_delayed and table.due_at is not None else []),
            *self._touched(),
        ]
        return self._update(sets, self._fence, keys)

    @property
    def recover(self) -> str:
        """Every row of one claim is queued again: its answer got lost, and no handler runs them."""
        table = self.table
        sets = [f"{named(table.status)} = {word(table.queued)}", *self._emptied(), *self._touched()]
        return f"update {self._where} set {', '.join(sets)} where {self._fence}"

    def beat(self, keys: int) -> str:
        """A sign of life for these rows, or, without a column for it, just the question whether they are held."""
        if self.table.heartbeat is None:
            return self.held(keys)
        return self._update([f"{named(self.table.heartbeat)} = :heartbeat"], self._fence, keys)

    def held(self, keys: int) -> str:
        """Of these rows, those that their claim still holds."""
        return f"select {named(self.table.key)} from {self._where} where {self._fence} and {self._among(keys)}"

    def state(self) -> str:
        """One row, as it stands: status, worker, start and error."""
        table = self.table
        error = "null" if table.error is None else named(table.error)
        columns = f"{named(table.status)}, {named(table.worker)}, {named(table.started_at)}, {error}"
        return f"select {columns} from {self._where} where {named(table.key)} = :k0"

    def _rescue(self, which: str = "") -> str | None:
        """Take back rows without a heartbeat for too long; None where there is no heartbeat column.

        A row that runs without one, as other programs may have left it, is as old as its start.
        """
        table = self.table
        if table.heartbeat is None:
            return None
        key = named(table.key)
        found = f"{self._stale()} {which}limit {RESCUE_LIMIT}"
        is_over = "0" if table.retries is None else f"coalesce({named(table.retries)}, 0) + 1 >= {table.attempts}"
        sets = [
            f"{named(table.status)} = case when {is_over} then {word(table.failed)} else {word(table.queued)} end",
            *(f"{named(column)} = case when {is_over} then {named(column)} end" for column in self._let_go()),
            *self._error(self._lost_text()),
            *([] if table.retries is None else [_counted(table.retries, "1")]),
        ]
        if table.finished_at is not None:
            finished = named(table.finished_at)
            sets.append(f"{finished} = case when {is_over} then :finished else {finished} end")
        return (
            f"update {self._where} set {', '.join([*sets, *self._touched()])} where {self._running} "
            f"and {key} in ({found}) returning {key}, {named(table.status)}"
        )

    def _stale(self) -> str | None:
        """The keys of rows without a heartbeat for too long, to be limited."""
        table = self.table
        if table.heartbeat is None:
            return None
        beat, started = named(table.heartbeat), named(table.started_at)
        stale = f"({beat} < :stale or ({beat} is null and {started} < :stale_start))"
        return f"select {named(table.key)} from {self._where} where {self._running} and {stale}"

    def _lost_text(self) -> str:
        table = self.table
        silence = word(lost_text(table))
        attempt = ""
        if table.retries is not None:
            attempt = f" || ' (attempt ' || (coalesce({named(table.retries)}, 0) + 1) || ' of {table.attempts})'"
        return f"'worker ' || coalesce({named(table.worker)}, '?') || {silence}{attempt}"

    def _let_go(self) -> list[str]:
        """The columns that a queued row does not need; one that is NOT NULL keeps its value."""
        columns = [self.table.worker, self.table.started_at, *([self.table.heartbeat] if self.table.heartbeat else [])]
        return [one for one in columns if not self._is_required(one)]

    def _emptied(self) -> list[str]:
        return [f"{named(column)} = null" for column in self._let_go()]

    def _update(self, sets: Iterable[str], condition: str, keys: int) -> str:
        return (
            f"update {self._where} set {', '.join(sets)} where {condition} and {self._among(keys)} "
            f"returning {named(self.table.key)}"
        )

    def _among(self, keys: int) -> str:
        return f"{named(self.table.key)} in ({_places(keys)})"


def _decoded(value: Any) -> Any:
    try:
        return msgspec.json.decode(value) if isinstance(value, (str, bytes)) else value
    except msgspec.DecodeError:
        return value


@functools.cache
def _places(keys: int) -> str:
    return ", ".join(f":k{place}" for place in range(keys))


def _counted(column: str, how_many: str) -> str:
    return f"{named(column)} = coalesce({named(column)}, 0) + {how_many}"


def bound_keys(keys: Sequence[object]) -> dict[str, object]:
    """Keys to bind, the last one repeated up to a power of two: ten statements serve every number of rows."""
    size = 1 << (len(keys) - 1).bit_length()
    return {f"k{place}": keys[min(place, len(keys) - 1)] for place in range(size)}
