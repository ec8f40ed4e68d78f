"""The statements about a table in an SQLite file, from the phrases that all databases share.

Names are quoted with backticks, which SQLite never takes for a text, as it does with a name in double quotes that it
does not know: a column that is dropped is an error, not a word. Values are bound by name, keys as `:k0`, `:k1`, …,
instants by the role of their column.
"""

# ruff: noqa: S608 - names and words are quoted, values are bound

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from everpoll.stores.contract import LEASE_LIMIT, encode
from everpoll.tables.changes import RuntimeValue
from everpoll.tables.claims import Claim, by_fence
from everpoll.tables.heartbeat_connection import RESCUE_LIMIT
from everpoll.tables.mapping import Table
from everpoll.tables.settling import Settled
from everpoll.tables.sqlite.instants import SECOND_US, Kind, instant_of, kind_of, later_us, now_us, read_us, stored
from everpoll.tables.sqlite.shape import FileShape
from everpoll.tables.statements import Phrases, TableStatements, Values, decoded

TODAY = "between :today_t and :now_t"
WRITTEN = ("started_at", "heartbeat", "finished_at", "updated_at")
"""Roles of instants that everpoll writes."""

CLAIM_SUFFIX = re.compile(":[0-9a-f]{8}$")
"""What a claim adds to its worker's label where starts are whole seconds."""
Sql = tuple[str, dict[str, Any]]
"""A statement and its parameters, by name."""


def named(name: str) -> str:
    """Quote a name."""
    return "`" + name.replace("`", "``") + "`"


def word(text: str) -> str:
    """Quote a text."""
    return "'" + text.replace("'", "''") + "'"


class Statements(Phrases, TableStatements[Sql]):
    """The statements of one table."""

    prefix = ""

    def __init__(self, table: Table, shape: FileShape) -> None:
        super().__init__(table, shape)
        self._shape = shape
        self.name = f"main.{named(table.parts[-1])}"
        self._queued, self._running = self.has_status(table.queued), self.has_status(table.running)
        self._fence = f"{self._running} and {self.at('worker')} = :worker and {self.at('started_at')} = :started"
        declared = {role: shape.column(name) for role, name in table.used.items()}
        self.kinds = {role: (kind_of(one.declared) if one else None) or Kind.TEXT for role, one in declared.items()}
        self._json = frozenset(name for name in (*table.columns, *table.results) if self._is_json(name))

    def quoted(self, name: str) -> str:
        """See `Phrases`."""
        return named(name)

    def literal(self, text: str) -> str:
        """See `Phrases`."""
        return word(text)

    def given(self, role: str, value: RuntimeValue) -> str:
        """See `Phrases`."""
        if value is RuntimeValue.RESULT:
            return f":r{self.table.results.index(self.table.used[role])}"
        return f":{role}" if value in {RuntimeValue.NOW, RuntimeValue.START} else f":{value.value}"

    def _is_json(self, column: str) -> bool:
        found = self._shape.column(column)
        return found is not None and found.declared.upper() in {"JSON", "JSONB"}

    def read(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the values of a row for its handler; JSON in a column that is declared as JSON is decoded."""
        read = zip(self.table.columns, values, strict=True)
        return {name: decoded(value) if name in self._json else value for name, value in read}

    def _results(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the handler returned as parameters: lists and dicts as JSON, and texts where JSON is declared."""
        return {
            f"r{self.table.results.index(name)}": encode(value) if self._as_json(name, value) else value
            for name, value in results.items()
        }

    def _as_json(self, name: str, value: Any) -> bool:
        return isinstance(value, (dict, list)) or (name in self._json and isinstance(value, (str, bool)))

    def _instants(self, instant_us: int) -> dict[str, Any]:
        """Return an instant in the form of each column that everpoll writes, by role."""
        return {role: stored(self.kinds[role], instant_us) for role in WRITTEN if role in self.kinds}

    def _due_now(self) -> dict[str, Any]:
        """Return the parameters of a statement that compares due times with now."""
        if "due_at" not in self.kinds:
            return {}
        written = stored(self.kinds["due_at"], now_us())
        if not isinstance(written, str):
            return {"now": written}
        return {"now": written, "now_t": written.replace(" ", "T"), "today_t": f"{written[:10]}T"}

    def poll(self, most: int) -> Sql:
        """Look for the best rows that wait and are due."""
        return self._poll, {**self._due_now(), "limit": most}

    def peek(self) -> Sql:
        """Tell whether a row is ready, and the next due time. Each part ends at the first row of an index."""
        return self._peek, self._due_now()

    @cached_property
    def _poll(self) -> str:
        read = [self.table.key, *([self.table.retries] if self.table.retries else []), *self.table.columns]
        columns = ", ".join(map(named, read))
        return f"select {columns} from {self.name} where {self.is_ready} order by {self.ordered()} limit :limit"

    @property
    def is_ready(self) -> str:
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

        `T` sorts after a space, so instants of today are compared with a limit in their own form.
        """
        return self.kinds["due_at"] is Kind.TEXT

    @cached_property
    def _peek(self) -> str:
        if self.table.due_at is None:
            return f"select exists (select 1 from {self.name} where {self.is_ready}), null"
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

    def claim(self, worker: str, start_us: int, keys: Sequence[Any]) -> Sql:
        """Claim these rows if they are still queued."""
        bound = {"worker": worker, **self._instants(start_us)}
        return self._update(self.sets(self.changes.claimed), self._queued, keys, bound)

    def settle(self, group: Sequence[Settled], now: int) -> Sql:
        """End rows that get the same values, or let them wait again, if this worker still holds them."""
        write = group[0].write
        bound = {"error": write.error, **self._instants(now), **self._results(write.results), **_fence(group[0].claim)}
        if write.delay_s is not None and "due_at" in self.kinds:
            bound["due"] = stored(self.kinds["due_at"], later_us(now, write.delay_s), up=True)
        sets = self.sets(self.changes.settled(write))
        return self._update(sets, self._fence, [one.claim.key for one in group], bound)

    def recover(self, claim: Claim) -> Sql:
        """Queue every row of one claim again: its answer got lost, so no handler runs them."""
        sql = f"update {self.name} set {self.sets(self.changes.waiting)} where {self._fence}"
        return sql, _fence(claim) | self._instants(now_us())

    def beats(self, claims: Sequence[Claim]) -> Iterator[Sql]:
        """See `TableStatements`."""
        sets, now = self.sets({"heartbeat": RuntimeValue.NOW}), self._instants(now_us())
        for group in by_fence(claims):
            yield self._update(sets, self._fence, [claim.key for claim in group], now | _fence(group[0]))

    def holds(self, claims: Iterable[Claim]) -> Iterator[Sql]:
        """See `TableStatements`."""
        for group in by_fence(claims):
            among, bound = self._among([claim.key for claim in group])
            yield f"select {self.key} from {self.name} where {self._fence} and {among}", bound | _fence(group[0])

    def states(self, keys: Sequence[Any]) -> Iterator[Sql]:
        """See `TableStatements`."""
        columns = ", ".join(map(self.at, ("key", "status", "worker", "started_at")))
        for at in range(0, len(keys), LEASE_LIMIT):
            among, bound = self._among(keys[at : at + LEASE_LIMIT])
            yield f"select {columns} from {self.name} where {among}", bound

    def rescues(self, rows: Sequence[Values] | None = None) -> list[Sql]:
        """See `TableStatements`."""
        among, bound = ("true", {}) if rows is None else self._among([row[0] for row in rows])
        sql = (
            f"update {self.name} set {self.gives_back} where {self._running} and {self.key} in "
            f"({self._stale} and {among} limit {RESCUE_LIMIT}) returning {self.key}, {self.at('status')}"
        )
        return [(sql, bound | self._stale_since())]

    def stale(self, limit: int) -> list[Sql]:
        """See `TableStatements`."""
        return [(f"{self._stale} limit {limit}", self._stale_since())]

    @property
    def _stale(self) -> str:
        beat, started = self.at("heartbeat"), self.at("started_at")
        is_stale = f"({beat} < :stale or ({beat} is null and {started} < :stale_start))"
        return f"select {self.key} from {self.name} where {self._running} and {is_stale}"

    def _stale_since(self) -> dict[str, Any]:
        now = now_us()
        stale_us = now - round(self.table.stale_after_s * SECOND_US)
        stale = stored(self.kinds["heartbeat"], stale_us)
        return {"stale": stale, "stale_start": stored(self.kinds["started_at"], stale_us), **self._instants(now)}

    def count(self, word: str) -> Sql:
        """See `TableStatements`."""
        return self.few(self.has_status(word)), {}

    def read_worker(self, value: str) -> str:
        """See `TableStatements`."""
        return CLAIM_SUFFIX.sub("", value) if self.kinds["started_at"] is Kind.WHOLE else value

    def read_instant(self, value: Any) -> datetime | None:
        """See `TableStatements`."""
        instant_us = read_us(value)
        return None if instant_us is None else instant_of(instant_us)

    def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> Sql:
        """See `TableStatements`. A column without a type keeps numbers and texts apart: a key may be either."""
        columns = ", ".join(map(self.at, roles))
        if role == "status":
            return f"select {columns} from {self.name} where {self.has_status(value)} limit {limit}", {}
        is_number = (
            value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 20 and abs(int(value)) < 2**63
        )
        sql = f"select {columns} from {self.name} where {self.at(role)} in (:value, :number) limit {limit}"
        return sql, {"value": value, "number": int(value) if is_number else value}

    def _update(self, sets: str, condition: str, keys: Sequence[Any], bound: Mapping[str, Any]) -> Sql:
        among, places = self._among(keys)
        return f"update {self.name} set {sets} where {condition} and {among} returning {self.key}", {**bound, **places}

    def _among(self, keys: Sequence[Any]) -> Sql:
        """Return a condition on the key; the last key is repeated up to a power of two, so that ten texts do."""
        places = {f"k{place}": keys[min(place, len(keys) - 1)] for place in range(1 << (len(keys) - 1).bit_length())}
        return f"{self.key} in (:{', :'.join(places)})", places


def _fence(claim: Claim) -> dict[str, Any]:
    """Return the parameters of the fence, without the keys."""
    return {"worker": claim.worker, "started": claim.started_at}
