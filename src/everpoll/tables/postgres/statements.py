"""The statements about a table in Postgres, from the phrases that all databases share.

Every change first locks the rows that it can get, `for update skip locked`: so no change waits for a transaction of
another program, and no two of them deadlock. It then finds the locked rows by their place, `ctid = any(array)`: the
plan of that does not depend on the number of rows, and it costs less than a search by keys. A row that was changed
meanwhile has moved to a place that the statement cannot see; the next statement takes it. Partitions have the same
places, so in a partitioned table rows are found by keys.
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

from everpoll.stores.contract import encode
from everpoll.tables.changes import RuntimeValue, queue_order
from everpoll.tables.claims import Claim
from everpoll.tables.heartbeat_connection import RESCUE_LIMIT
from everpoll.tables.mapping import COMPARED, Table
from everpoll.tables.outcome import RowWrite
from everpoll.tables.postgres.ddl import priority_order
from everpoll.tables.postgres.shape import PostgresColumn, Relation
from everpoll.tables.settling import Settled
from everpoll.tables.sql_names import identifier, literal
from everpoll.tables.statements import COUNT_LIMIT, INSTANT_ROLES, Phrases, TableStatements, Values, decoded

PLAIN_KEYS = {"int2": "int2", "int4": "int4", "int8": "int8", "uuid": "uuid", "text": "text", "varchar": "text"}
"""Types that the driver sends in arrays without asking the server; keys of any other type travel as texts."""
SECOND = "interval '1 second'"
LOCKED = "for update of t skip locked"
CALENDAR_TYPES = ("date", "timestamp", "timestamptz")


Sql = tuple[Any, ...]
"""A statement and its parameters."""


class Statements(Phrases, TableStatements[Sql]):
    """The statements of one table, which is `t` in all of them."""

    def __init__(self, table: Table, relation: Relation) -> None:
        super().__init__(table, relation)
        self.relation = relation
        self.name = f"{relation.sql} t"
        key = relation.columns[table.key]
        plain = PLAIN_KEYS.get(key.base)
        self.key_out = f"{self.key}::{plain or 'text'} as k"
        self._keys_in = f"{plain}[]" if plain else f"text[]::{key.type}[]"
        self._start_type = self.column_of("started_at").base
        self._place = self.key if relation.has_parts else "t.ctid"
        self._worker_type = f"text::{self.column_of('worker').type}"
        self._downwards = priority_order(table, relation)
        self._settlements: dict[Hashable, str] = {}
        self._json = [name for name in table.columns if relation.columns[name].base in {"json", "jsonb"}]

    def column_of(self, role: str) -> PostgresColumn:
        """Return the column of a mapped role."""
        return self.relation.columns[self.table.used[role]]

    def text(self, role: str) -> str:
        """See `Phrases`."""
        return f"{self.at(role)}::text"

    def word(self, text: str) -> str:
        """Return a status as a literal of the column's own type, so that the planner finds a partial index."""
        return f"{literal(text)}::{self.column_of('status').type}"

    def error(self, text: str) -> str:
        """See `Phrases`."""
        length = self.column_of("error").length
        return text if length is None else f"left({text}, {length})"

    def given(self, role: str, value: RuntimeValue) -> str:
        """See `Phrases`. $1 is the worker of a claim, `u` has errors and delays of settlements, `j` has results."""
        match value:
            case RuntimeValue.WORKER:
                return f"$1::{self._worker_type}"
            case RuntimeValue.ERROR:
                return self.error("u.e")
            case RuntimeValue.DUE:
                return f"now() + u.d * {SECOND}"
            case RuntimeValue.RESULT:
                name = self.table.used[role]
                return f"decode(j.{identifier(name)}, 'base64')" if self._is_bytes(name) else f"j.{identifier(name)}"
            case _:
                return "now()"

    def instant(self, role: str) -> str:
        """Return the column as an instant. One without a time zone is read in that of the session."""
        return f"{self.at(role)}::timestamptz"

    def is_still(self, word: str) -> str:
        """Return a condition on the status of rows that were found by their key, in a form that no index matches.

        On a table with old statistics the planner expects few waiting or running rows. With an index it would read all
        of them by their status and search ours among them.
        """
        return f"{self.at('status')}::text || '' = {literal(word)}"

    def _is_ours(self, worker: str) -> str:
        """Return the part of the fence that is neither key nor start."""
        return f"{self.at('worker')} = {worker}::{self._worker_type} and {self.is_still(self.table.running)}"

    def _held(self, more: str = "", names: str = "") -> str:
        """Return claimed rows, from arrays: $1 keys, $2 starts."""
        return f"unnest($1::{self._keys_in}, $2::{self._start_type}[]{more}) as u (k, s{names})"

    def _picked(self, rows: str) -> str:
        """Return a common table expression with the places of these rows, without those that are locked."""
        return f"with picked as materialized (select {self._place} from {rows} {LOCKED})"

    def _update(self, sets: str, still: str, returning: str) -> str:
        """Change the picked rows that have not changed since."""
        is_picked = f"{self._place} = any(array(select * from picked))"
        return f"update {self.name} set {sets} where {is_picked} and {still} returning {returning}"

    @cached_property
    def claim(self) -> str:
        """Claims the first rows that are due. $1 worker, $2 how many."""
        best = f"{self.name} where {self.is_ready} order by {self.ordered(self._downwards)} limit $2"
        return self._claimed(best)

    @cached_property
    def poll(self) -> str:
        """Looks for waiting rows, $1 how many."""
        return self.poll_of("$1")

    def poll_of(self, limit: str) -> str:
        """Return the look for so many rows. The index serves this query."""
        seen = COMPARED.get(self.table.guard)
        outputs = self.key_out if seen is None else f"{self.key_out}, {self._seen(seen)} as v"
        order = self.ordered(self._downwards)
        return f"select {outputs} from {self.name} where {self.is_ready} order by {order} limit {limit}"

    @cached_property
    def claim_seen(self) -> str:
        """Claims the rows that have not changed since the look. $1 worker, $2 keys, $3 versions or times of change."""
        seen = COMPARED.get(self.table.guard)
        if seen is None:
            still = f"{self.name} where {self.key} = any($2::{self._keys_in})"
        else:
            kind = "int8" if seen == "version" else self.column_of(seen).base
            rows = f"unnest($2::{self._keys_in}, $3::{kind}[]) as u (k, v) join {self.name} on {self.key} = u.k"
            still = f"{rows} where {self._seen(seen)} is not distinct from u.v"
        return self._claimed(f"{still} and {self.is_still(self.table.queued)}{self.and_is_due}")

    def _seen(self, role: str) -> str:
        return f"{self.at(role)}::int8" if role == "version" else self.at(role)

    def _claimed(self, rows: str) -> str:
        """Return claimed rows in the order of the queue, with the columns that the handler reads."""
        order = queue_order(self.table)
        outputs = [self.key_out, f"{self.at('started_at')} as s", f"{self.retries}::int8 as r"]
        outputs += [f"{self._output(name)} as c{number}" for number, name in enumerate(self.table.columns)]
        names = ", ".join(one.rsplit(" as ", 1)[1] for one in outputs)
        outputs += [f"{self.named(name)} as o{number}" for number, name in enumerate(order)]
        ways = [self._downwards if is_down else "" for is_down in order.values()]
        by = ", ".join(f"o{number}{way}" for number, way in enumerate(ways))
        update = self._update(self.sets(self.changes.claimed), self.is_still(self.table.queued), ", ".join(outputs))
        return f"{self._picked(rows)}, claimed as ({update}) select {names} from claimed order by {by}"

    def read(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the values of a claimed row for its handler; JSON is decoded."""
        read = dict(zip(self.table.columns, values, strict=True))
        for name in self._json:
            read[name] = decoded(read[name])
        return read

    def _output(self, name: str) -> str:
        column, value = self.relation.columns[name], self.named(name)
        if column.base in CALENDAR_TYPES:
            return _in_calendar(value)
        if column.base == "time":  # Python has no 24:00
            return f"case when {value} = '24:00' then '23:59:59.999999' else {value} end"
        # The driver would ask the server about an enum's type first.
        return f"{value}::text" if column.category == "E" else value

    @cached_property
    def waits(self) -> str:
        """Tells whether any row is due, though none could be claimed, and in how many seconds the next one is due."""
        is_there = f"exists(select from {self.name} where {self.is_ready})"
        if self.table.due_at is None:
            return f"select {is_there}, null::float8"
        due = self.instant("due_at")
        # Older servers cannot subtract from infinity.
        next_due = f"least(min({due}), now() + interval '1000 years')"
        return (
            f"select {is_there}, (select extract(epoch from {next_due} - now())::float8 from {self.name} "
            f"where {self.has_status(self.table.queued)} and {due} > now())"
        )

    def recover(self, worker: str, known: Iterable[Claim]) -> Sql:
        """Hand back the rows of this worker, except those of the claims of which it knows."""
        keys, starts = [one.key for one in known], [one.started_at for one in known]
        return self._recover, keys, starts, worker

    @cached_property
    def _recover(self) -> str:
        fence = self._is_ours("$3")
        known = f"select from {self._held()} where u.k = {self.key} and u.s = {self.at('started_at')}"
        unknown = f"{self.name} where {self.has_status(self.table.running)} and {fence} and not exists({known})"
        return f"{self._picked(unknown)} {self._update(self.sets(self.changes.waiting), fence, '1')}"

    def settle(self, group: Sequence[Settled]) -> Sql:
        """Return the statement that settles rows of one pattern; rows of a plain one have one start.

        The answer is empty if all rows were changed, which is nearly always so; else it has the keys that were changed.
        """
        pattern, write, first = group[0].pattern, group[0].write, group[0].claim
        if pattern not in self._settlements:
            self._settlements[pattern] = self._settle(write)
        text, keys = self._settlements[pattern], [one.claim.key for one in group]
        if write.is_plain:
            return text, keys, first.started_at, first.worker
        starts = [one.claim.started_at for one in group]
        errors, delays = [one.write.error for one in group], [one.write.delay_s for one in group]
        return text, keys, starts, first.worker, errors, delays, [encode(one.write.results) for one in group]

    def _settle(self, write: RowWrite) -> str:
        """Return the text of a settlement. Parameters: $1 keys, $2 start, $3 worker.

        Where rows differ, $2 has a start for each, $4 errors, $5 delays, $6 results. A plain settlement, the ordinary
        end of a batch whose rows share one start, needs no join.
        """
        start = self.at("started_at")
        if write.is_plain:
            which = f"where {self.key} = any($1::{self._keys_in}) and {start} = $2::{self._start_type}"
        else:
            rows = self._held(", $4::text[], $5::float8[], $6::text[]", ", e, d, j")
            if write.results:
                fields = ", ".join(f"{identifier(name)} {self._field(name)}" for name in sorted(write.results))
                rows += f" cross join lateral json_to_record(u.j::json) as j ({fields})"
            which = f"from {rows} where {self.key} = u.k and {start} = u.s"
        update = f"update {self.name} set {self.sets(self.changes.settled(write))} {which} and {self._is_ours('$3')}"
        return (
            f"with changed as ({update} returning {self.key_out}) select "
            "case when count(*) < cardinality($1) then coalesce(array_agg(k), '{}') end from changed"
        )

    def _is_bytes(self, name: str) -> bool:
        """Return True if the column holds bytes: in JSON they are base64."""
        return self.relation.columns[name].base == "bytea"

    def _field(self, name: str) -> str:
        return "text" if self._is_bytes(name) else self.relation.columns[name].declared

    def states(self, keys: Sequence[Any]) -> list[Sql]:
        """See `TableStatements`."""
        outputs = f"{self.key_out}, {self.text('status')}, {self.text('worker')}, {self.at('started_at')}"
        return [(f"select {outputs} from {self.name} where {self.key} = any($1::{self._keys_in})", keys)]

    def holds(self, claims: Iterable[Claim]) -> list[Sql]:
        """See `TableStatements`."""
        return self._about(self._holds, list(claims))

    def beats(self, claims: Sequence[Claim]) -> list[Sql]:
        """See `TableStatements`. It skips rows that a settlement has locked."""
        return self._about(self._beats, claims)

    def _about(self, text: str, claims: Sequence[Claim]) -> list[Sql]:
        """Add the parameters of a statement about claims of one worker, if there are any."""
        keys, starts = [claim.key for claim in claims], [claim.started_at for claim in claims]
        return [(text, keys, starts, claims[0].worker)] if claims else []

    @property
    def _rows_of_ours(self) -> str:
        """Return held rows. $1 keys, $2 starts, $3 worker."""
        fence = f"{self.at('started_at')} = u.s and {self._is_ours('$3')}"
        return f"{self._held()} join {self.name} on {self.key} = u.k where {fence}"

    @cached_property
    def _holds(self) -> str:
        return f"select {self.key_out} from {self._rows_of_ours}"

    @cached_property
    def _beats(self) -> str:
        update = self._update(self.sets({"heartbeat": RuntimeValue.NOW}), self._is_ours("$3"), "1")
        return f"{self._picked(self._rows_of_ours)}, heard as ({update}) {self._holds}"

    @property
    def _is_stale(self) -> str:
        heard_at = f"coalesce({self.instant('heartbeat')}, {self.instant('started_at')})"
        return f"{heard_at} < now() - $1::float8 * {SECOND}"

    def stale(self, limit: int) -> list[Sql]:
        """See `TableStatements`."""
        is_there = f"{self.has_status(self.table.running)} and {self._is_stale}"
        text = f"select {self.key_out} from {self.name} where {is_there} limit $2"
        return [(text, self.table.stale_after_s, limit)]

    def rescues(self, rows: Sequence[Values] | None = None) -> list[Sql]:
        """See `TableStatements`."""
        which = "" if rows is None else f" and {self.key} = any($2::{self._keys_in})"
        stale = f"{self.has_status(self.table.running)} and {self._is_stale}{which}"
        still = f"{self.is_still(self.table.running)} and {self._is_stale}"
        picked = self._picked(f"{self.name} where {stale} limit {RESCUE_LIMIT}")
        outputs = f"{self.key_out}, {self.text('status')}"
        text = f"{picked} {self._update(self.gives_back, still, outputs)}"
        return [(text, self.table.stale_after_s, *([] if rows is None else [[row[0] for row in rows]]))]

    def count(self, word: str) -> Sql:
        """See `TableStatements`. The index has queued and running rows only: those that ended are counted in a small
        table.
        """
        rows = self.few(self.has_status(word))
        if word in {self.table.queued, self.table.running}:
            return (rows,)
        return (f"select case when ({self.few('true')}) <= {COUNT_LIMIT} then ({rows}) end",)

    def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> Sql:
        """See `TableStatements`."""
        columns = ", ".join(self._typed(one) for one in roles)
        if role == "status":
            return (f"select {columns} from {self.name} where {self.has_status(value)} limit {limit}",)
        which = f"{self.at(role)} = $1::text::{self.column_of(role).type}"
        return f"select {columns} from {self.name} where {which} limit {limit}", value

    def _typed(self, role: str) -> str:
        if role in INSTANT_ROLES:
            return _in_calendar(self.instant(role))
        return f"{self.at(role)}::int8" if role == "retries" else self.text(role)


def _in_calendar(value: str) -> str:
    """Read what is outside of Python's calendar as infinite, which the driver reads as its first or last instant.

    It raises for anything else, and the claim of a whole batch would be committed without an answer.
    """
    before, after = f"{value} < '0001-01-02'", f"{value} > '9999-12-30'"
    return f"case when {before} then '-infinity' when {after} then 'infinity' else {value} end"
