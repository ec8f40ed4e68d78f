"""The requests about one table, built from its mapping.

Promises: every write has its whole condition in the address, so PostgREST makes one UPDATE of it that changes a row
only if all of it holds, and returns the changed rows. Only the needed columns are selected.
Never: decides anything. The time is a parameter, or the word `now`, which the database reads by its own clock.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from everpoll.drivers.postgrest.clock import read_instant, written
from everpoll.drivers.postgrest.filters import Query, chunks, column, equals, one_of, quoted
from everpoll.drivers.postgrest.http import Request
from everpoll.tables.changes import Change, Changes, Plus, RuntimeValue, queue_order
from everpoll.tables.claiming import Claimed
from everpoll.tables.claims import Claim, by_fence, grouped
from everpoll.tables.contract import StatusCount
from everpoll.tables.mapping import COMPARED, Table
from everpoll.tables.outcome import lost_error
from everpoll.tables.settling import Settled
from everpoll.tables.statements import TableStatements, Values
from everpoll.tables.supabase.functions import claimed_columns, functions_of

COUNT_LIMIT = 1_000
"""Supabase answers with a thousand rows at most, unless the project says otherwise."""
NOW = "now"
"""Read by Postgres, by its own clock, when the statement runs."""
Body = dict[str, Any]
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class HttpClaim(Claim, frozen=True, gc=False):
    """A claimed row, with the numbers that HTTP cannot increment."""

    retries: int = 0
    version: int | None = None
    """As it was claimed; later writes raise it further."""


def http_claim(claim: Claim) -> HttpClaim:
    """Return the claim as what every claim over HTTP is."""
    assert isinstance(claim, HttpClaim), "it was claimed over HTTP"
    return claim


class Statements(TableStatements[Request]):
    """Requests about one table. `is_required` returns True for a column that does not take NULL; it is not emptied."""

    def __init__(self, table: Table, is_required: Callable[[str], bool]) -> None:
        self.table = table
        self.changes = Changes(table, is_required)
        *schema, name = table.parts
        self.path = "/" + quote(name, safe="")
        self._reading = {"Accept-Profile": schema[0]} if schema else {}
        self._writing = {"Content-Profile": schema[0]} if schema else {}
        self.read = claimed_columns(table)
        """The columns that a claim returns."""
        self.functions = functions_of(table) if table.guard == "skip_locked" else None
        """Those that the guard needs in the database."""

    @property
    def _compared(self) -> list[str]:
        """The key, and the column that the guard compares with the value of the look, if it compares one."""
        seen = COMPARED.get(self.table.guard)
        return [self.table.key] if seen is None else [self.table.key, self.table.used[seen]]

    def get(self, names: Sequence[str], filters: Query, order: str | None = None, limit: int | None = None) -> Request:
        """Return a request for rows, with these columns."""
        query = [_selected(names), *filters]
        if order is not None:
            query.append(("order", order))
        if limit is not None:
            query.append(("limit", str(limit)))
        return Request(method="GET", path=self.path, query=tuple(query), headers=self._reading, names=tuple(names))

    def patch(self, names: Sequence[str], filters: Query, body: Body, clock: str | None = None) -> Request:
        """Return a request that changes the rows that match the filters, and returns them with these columns.

        Never with `or`: PostgREST applies it to what comes back as well, after the change, so a row would be changed
        and not reported.
        """
        assert not any(name in {"or", "and"} for name, _ in filters), "see above"
        names = (*names, *([] if clock is None else [clock]))
        return Request(
            method="PATCH",
            path=self.path,
            query=(_selected(names), *filters),
            body=body,
            headers={**self._writing, "Prefer": "return=representation"},
            names=names,
            clock=clock,
        )

    def call(self, function: str, arguments: Body) -> Request:
        """Return a request that calls a function in the database."""
        return Request(method="POST", path=f"/rpc/{function}", body=arguments, headers=self._writing)

    def by_keys(self, filters: Query, keys: Sequence[Any]) -> Iterator[Query]:
        """Yield the filters with the keys added, in parts that fit into an address."""
        table = self.table
        taken = len(self.get(self.read, filters).target) + len(quote(column(table.key), safe="")) + len("=in.%28%29&")
        for part in chunks(keys, taken):
            yield ((column(table.key), one_of(part)), *filters)

    def poll(self, limit: int) -> Request:
        """Return the query for the first waiting rows that are due: their keys, and what the guard compares later."""
        table = self.table
        return self.get(self._compared, (*self._is(table.queued), *self._is_due()), self._order(), limit)

    def later(self) -> Request | None:
        """Return the query for the next row that falls due; None: rows of this table are always due."""
        due_at = self.table.due_at
        if due_at is None:
            return None
        waits = (*self._is(self.table.queued), (column(due_at), f"gt.{NOW}"))
        return self.get([due_at], waits, f"{column(due_at)}.asc", 1)

    def claims(
        self, candidates: Sequence[Values], new_claim: Callable[[], Claim], is_exact: bool
    ) -> Iterator[tuple[Claim, Request]]:
        """Yield requests that claim the candidates: one per part that one condition can claim, each with a claim of its
        own.

        Others must not judge an age by a clock that may be wrong or a second behind. With such a clock the database
        writes the heartbeat by its own.
        """
        heartbeat = self.table.heartbeat
        for group in grouped(candidates, lambda row: row[1:]):
            seen = group[0][1:]
            filters = (*self._is(self.table.queued), *self._equal(self._compared[1:], seen))
            for whole in self.by_keys(filters, [row[0] for row in group]):
                claim = new_claim()
                given = {RuntimeValue.WORKER: claim.worker, RuntimeValue.START: claim.started_at}
                body = self.body(self.changes.claimed, given, {"version": next(iter(seen), None)})
                if heartbeat is not None and not is_exact:
                    body[heartbeat] = NOW
                yield claim, self.patch(self.read, whole, body)

    def claimed(self, worker: str, row: Body) -> Claimed:
        """Return a row that was claimed. `row`: the columns of `read`."""
        table = self.table
        retries = (row[table.retries] or 0) if table.retries is not None else 0
        version = row[table.version] if table.guard == "version" else None
        claim = HttpClaim(row[table.key], worker, row[table.started_at], retries, version)
        return Claimed(claim, retries + 1, {name: row[name] for name in table.columns})

    def held_rows(self, claim: Claim) -> Request:
        """Return the query for all rows of one claim that are still held: their keys, and what the guard compares."""
        return self.get(self._compared, self.held(claim))

    def recover(self, claim: Claim, version: int | None) -> Request:
        """Return the request that hands back all rows of one claim; with guard="version", those of that version."""
        body = self.body(self.changes.waiting, {}, {"version": version})
        return self.patch([self.table.key], (*self.held(claim), *self._in_version(version)), body)

    def settles(self, claim: Claim, keys: Sequence[Any], body: Body) -> Iterator[Request]:
        """Yield requests that write the same into rows of one claim that are still held, and in the claim's version."""
        finished_at = self.table.finished_at
        for whole in self.by_keys((*self.held(claim), *self._in_version(http_claim(claim).version)), keys):
            yield self.patch([self.table.key], whole, body, finished_at if finished_at in body else None)

    def beats(self, claims: Iterable[Claim]) -> Iterator[Request]:
        """See `TableStatements`."""
        heartbeat = self.table.heartbeat
        assert heartbeat is not None, "without a column, `holds` is asked"
        for whole in self._held_by(claims):
            yield self.patch([self.table.key], whole, {heartbeat: NOW}, heartbeat)

    def holds(self, claims: Iterable[Claim]) -> Iterator[Request]:
        """See `TableStatements`. What the guard compares is read as well."""
        for whole in self._held_by(claims):
            yield self.get(self._compared, whole)

    def _held_by(self, claims: Iterable[Claim]) -> Iterator[Query]:
        for group in by_fence(claims):
            yield from self.by_keys(self.held(group[0]), [claim.key for claim in group])

    def states(self, keys: Sequence[Any]) -> Iterator[Request]:
        """See `TableStatements`."""
        table = self.table
        for whole in self.by_keys((), keys):
            yield self.get([table.key, table.status, table.worker, table.started_at], whole)

    def count(self, word: str) -> Request:
        """See `TableStatements`."""
        return self.select(["key"], "status", word, COUNT_LIMIT)

    def counted(self, word: str, rows: Sequence[Values]) -> StatusCount:
        """See `TableStatements`."""
        return StatusCount(status=word, rows=len(rows), is_capped=len(rows) >= COUNT_LIMIT)

    def read_instant(self, value: str) -> datetime:
        """See `TableStatements`."""
        return read_instant(value)

    def select(self, roles: Sequence[str], role: str, value: str, limit: int) -> Request:
        """See `TableStatements`."""
        used = self.table.used
        return self.get([used[one] for one in roles], ((column(used[role]), equals(value)),), limit=limit)

    def body(self, change: Change, given: Mapping[Any, Any] = NOTHING, numbers: Mapping[str, Any] = NOTHING) -> Body:
        """Return the JSON body of a change.

        `given` has the values that the change leaves open; the database reads its own clock for an instant without
        one. `numbers`, by role, has the present values to which HTTP cannot add.
        """
        body: Body = {}
        for role, value in change.items():
            if isinstance(value, Plus):
                body[self.table.used[role]] = (numbers.get(role) or 0) + value.number
            elif isinstance(value, RuntimeValue):
                body[self.table.used[role]] = given.get(value, NOW)
            else:
                body[self.table.used[role]] = value
        return body

    def settled(self, one: Settled, now: datetime) -> Body:
        """Return the JSON body that a settlement writes into its row."""
        write, claim = one.write, http_claim(one.claim)
        due_at = None if write.delay_s is None else written(_later(now, write.delay_s))
        given = {RuntimeValue.ERROR: write.error, RuntimeValue.DUE: due_at}
        numbers = {"retries": claim.retries, "version": claim.version}
        return self.body(self.changes.settled(write), given, numbers) | write.results

    def held(self, claim: Claim) -> Query:
        """Return the filters of the fence: the row is running, and by this claim."""
        table = self.table
        by = self._equal([table.worker, table.started_at], [claim.worker, claim.started_at])
        return (*self._is(table.running), *by)

    def _in_version(self, version: int | None) -> Query:
        return self._equal([self.table.version], [version]) if self.table.guard == "version" else ()

    def _equal(self, names: Sequence[str], values: Sequence[Any]) -> Query:
        return tuple((column(name), equals(value)) for name, value in zip(names, values, strict=True))

    def probe(self) -> Body:
        """Return a body with every column that a claim writes, to find out whether the key may write them."""
        return self.body(self.changes.claimed, {RuntimeValue.WORKER: ""})

    def stale(self, limit: int, before: datetime | None = None) -> list[Request]:
        """See `TableStatements`. `before`: since when they are silent; None: all running rows."""
        longest_silent = f"{column(str(self.table.heartbeat))}.asc"
        return [self.get([self.table.key, *self._as_found()], self._is_stale(before), longest_silent, limit)]

    def heard_at(self, row: Values) -> str | None:
        """Return the last heartbeat of a stale row, or its start if it has none."""
        found = self._found(row)
        sign: str | None = found[str(self.table.heartbeat)] or found[self.table.started_at]
        return sign

    def rescues(self, rows: Sequence[Values] | None = None) -> Iterator[Request]:
        """See `TableStatements`. Each row is taken back only if it has not changed since it was read."""
        assert rows is not None, "HTTP reads what is stale first"
        table = self.table
        for group in grouped(rows, lambda row: row[1:]):
            filters = (*self._is(table.running), *self._equal(self._as_found(), group[0][1:]))
            for whole in self.by_keys(filters, [row[0] for row in group]):
                yield self.patch([table.key, table.status], whole, self._rescued(self._found(group[0])))

    def _found(self, row: Values) -> Body:
        return dict(zip(self._as_found(), row[1:], strict=True))

    def _rescued(self, found: Body) -> Body:
        """Return the body that takes back a row of a dead worker."""
        table = self.table
        retries = 0 if table.retries is None else found[table.retries] or 0
        change = self.changes.lost(is_last=table.retries is not None and retries + 1 >= table.attempts)
        given = {RuntimeValue.LOST: lost_error(table, found[table.worker], retries)}
        return self.body(change, given, {"retries": retries, "version": found.get(table.version)})

    def _is_stale(self, before: datetime | None) -> Query:
        table = self.table
        assert table.heartbeat is not None, "without a heartbeat no worker is declared dead"
        if before is None:
            return self._is(table.running)
        instant, beat, start = quoted(written(before)), column(table.heartbeat), column(table.started_at)
        old = f"({beat}.lt.{instant},and({beat}.is.null,{start}.lt.{instant}))"
        return (*self._is(table.running), ("or", old))

    def _as_found(self) -> list[str]:
        table = self.table
        names = [table.worker, table.started_at, table.heartbeat, table.retries]
        names += [table.version] if table.guard == "version" else []
        return [name for name in names if name is not None]

    def _is(self, word: str) -> Query:
        return ((column(self.table.status), equals(word)),)

    def _is_due(self) -> Query:
        due_at = self.table.due_at
        return () if due_at is None else (("or", f"({column(due_at)}.is.null,{column(due_at)}.lte.{NOW})"),)

    def _order(self) -> str:
        ways = {True: "desc.nullslast", False: "asc"}
        return ",".join(f"{column(name)}.{ways[is_down]}" for name, is_down in queue_order(self.table).items())


def _selected(names: Sequence[str]) -> tuple[str, str]:
    return "select", ",".join(column(name) for name in names)


def _later(now: datetime, delay_s: float) -> datetime:
    try:
        return now + timedelta(seconds=delay_s)
    except OverflowError:
        return datetime.max.replace(tzinfo=now.tzinfo)
