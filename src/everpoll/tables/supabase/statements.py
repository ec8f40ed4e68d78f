"""The requests about one table, built from its mapping.

Promises: every write has its whole condition in the address, so PostgREST makes one UPDATE of it that changes a row
only if all of it holds, and returns the changed rows. Only the needed columns are selected.
Never: decides anything. The time is a parameter, or the word `now`, which the database reads by its own clock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from everpoll.tables.changes import Change, Changes, Given, Plus, pattern_of, queue_order
from everpoll.tables.claims import Claim
from everpoll.tables.mapping import Table
from everpoll.tables.outcome import RowWrite, lost_error
from everpoll.tables.supabase.clock import written
from everpoll.tables.supabase.filters import Query, chunks, column, equals, one_of, quoted
from everpoll.tables.supabase.http import Request

NOW = "now"
"""Read by Postgres, by its own clock, when the statement runs."""
Body = dict[str, Any]
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class HttpClaim(Claim, frozen=True, gc=False):
    """A claimed row, with the numbers that HTTP cannot increment."""

    retries: int = 0
    version: int | None = None
    """As it was claimed; later writes raise it further."""


class Statements:
    """Requests about one table. `is_required` returns True for a column that does not take NULL; it is not emptied."""

    def __init__(self, table: Table, is_required: Callable[[str], bool] = lambda _: False) -> None:
        self.table = table
        self.changes = Changes(table, is_required)
        *schema, name = table.parts
        self.path = "/" + quote(name, safe="")
        self._reading = {"Accept-Profile": schema[0]} if schema else {}
        self._writing = {"Content-Profile": schema[0]} if schema else {}
        self.read = list(dict.fromkeys([table.key, *self._taken(), *table.columns]))
        """The columns that a claim returns."""

    def _taken(self) -> list[str]:
        table = self.table
        found = [table.started_at, table.heartbeat, table.retries, self.seen]
        return [name for name in found if name is not None]

    @property
    def seen(self) -> str | None:
        """The column that the guard compares with the value of the look; None: the guard compares none."""
        return {"version": self.table.version, "timestamp": self.table.updated_at}.get(self.table.guard)

    @property
    def _compared(self) -> list[str]:
        return [self.table.key] if self.seen is None else [self.table.key, self.seen]

    def get(self, names: Sequence[str], filters: Query, order: str | None = None, limit: int | None = None) -> Request:
        """Return a request for rows, with these columns."""
        query = [("select", ",".join(column(name) for name in names)), *filters]
        if order is not None:
            query.append(("order", order))
        if limit is not None:
            query.append(("limit", str(limit)))
        return Request(method="GET", path=self.path, query=tuple(query), headers=self._reading)

    def patch(self, names: Sequence[str], filters: Query, body: Body) -> Request:
        """Return a request that changes the rows that match the filters, and returns them with these columns.

        Never with `or`: PostgREST applies it to what comes back as well, after the change, so a row would be changed
        and not reported.
        """
        assert not any(name in {"or", "and"} for name, _ in filters), "see above"
        select = ("select", ",".join(column(name) for name in names))
        headers = {**self._writing, "Prefer": "return=representation"}
        return Request(method="PATCH", path=self.path, query=(select, *filters), body=body, headers=headers)

    def call(self, function: str, arguments: Body) -> Request:
        """Return a request that calls a function in the database."""
        return Request(method="POST", path=f"/rpc/{function}", body=arguments, headers=self._writing)

    def by_keys(self, filters: Query, keys: Sequence[Any]) -> Iterator[Query]:
        """Yield the filters with the keys added, in parts that fit into an address."""
        table = self.table
        taken = len(self.get(self.read, filters).target) + len(quote(column(table.key), safe="")) + len("=in.%28%29&")
        for part in chunks(keys, taken):
            yield ((column(table.key), one_of(part)), *filters)

    def candidates(self, limit: int) -> Request:
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
        self, candidates: Sequence[Body], worker: str, starts: Iterator[str], is_exact: bool
    ) -> Iterator[tuple[str, Request]]:
        """Yield requests that claim the candidates, each with a start of its own: one per part that one condition can
        claim.

        Others must not judge an age by a clock that may be wrong or a second behind. With such a clock the database
        writes the heartbeat by its own.
        """
        table, groups = self.table, dict[Any, list[Any]]()
        for row in candidates:
            groups.setdefault(None if self.seen is None else row[self.seen], []).append(row[table.key])
        for seen, keys in groups.items():
            filters = self._is(table.queued)
            if self.seen is not None:
                filters += ((column(self.seen), equals(seen)),)
            for whole in self.by_keys(filters, keys):
                given = {Given.WORKER: worker, Given.START: next(starts)}
                body = self.body(self.changes.claimed, given, {"version": seen})
                if table.heartbeat is not None and not is_exact:
                    body[table.heartbeat] = NOW
                yield given[Given.START], self.patch(self.read, whole, body)

    def claimed(self, claim: Claim) -> Request:
        """Return the query for the rows of one claim that are still held: their keys and versions."""
        return self.get(self._compared, self.held(claim))

    def unclaim(self, claim: Claim, version: int | None) -> Request:
        """Return the request that hands back all rows of one claim; with guard="version", those of that version."""
        filters = self.held(claim)
        if self.table.guard == "version":
            filters += ((column(self.table.version), equals(version)),)
        return self.patch([self.table.key], filters, self.body(self.changes.waiting, {}, {"version": version}))

    def settles(self, claim: Claim, version: int | None, keys: Sequence[Any], body: Body) -> Iterator[Request]:
        """Yield requests that write the same into rows of one claim that are still held."""
        filters = self.held(claim)
        if self.table.guard == "version":
            filters += ((column(self.table.version), equals(version)),)
            body = body | {self.table.version: (version or 0) + 1}
        finished_at = self.table.finished_at
        names = [self.table.key, *([finished_at] if finished_at is not None and finished_at in body else [])]
        for whole in self.by_keys(filters, keys):
            yield self.patch(names, whole, body)

    def beats(self, claim: Claim, keys: Sequence[Any]) -> Iterator[Request]:
        """Yield requests that write a heartbeat into rows of one claim; without a column for it, those of `holds`.

        A heartbeat does not count as a change of the row: its version and time of change stay.
        """
        heartbeat = self.table.heartbeat
        if heartbeat is None:
            yield from self.holds(claim, keys)
        else:
            for whole in self.by_keys(self.held(claim), keys):
                yield self.patch([self.table.key, heartbeat], whole, {heartbeat: NOW})

    def holds(self, claim: Claim, keys: Sequence[Any]) -> Iterator[Request]:
        """Yield queries which rows of one claim are still held, with what the guard compares."""
        for whole in self.by_keys(self.held(claim), keys):
            yield self.get(self._compared, whole)

    def states(self, keys: Sequence[Any]) -> Iterator[Request]:
        """Yield queries for these rows as they are now."""
        table = self.table
        names = [table.key, table.status, table.worker, table.started_at]
        for whole in self.by_keys((), keys):
            yield self.get(names, whole)

    def body(self, change: Change, given: Mapping[Any, Any] = NOTHING, numbers: Mapping[str, Any] = NOTHING) -> Body:
        """Return the JSON body of a change.

        `given` has the values that the change leaves open; the database reads its own clock for an instant without
        one. `numbers`, by role, has the present values to which HTTP cannot add.
        """
        body: Body = {}
        for role, value in change.items():
            if isinstance(value, Plus):
                body[self.table.used[role]] = (numbers.get(role) or 0) + value.number
            elif isinstance(value, Given):
                body[self.table.used[role]] = given.get(value, NOW)
            else:
                body[self.table.used[role]] = value
        return body

    def settled(self, write: RowWrite, claim: HttpClaim, due_at: datetime | None) -> Body:
        """Return the JSON body that a settlement writes into its row."""
        change = self.changes.settled(pattern_of(write))
        given = {Given.ERROR: write.error, Given.DUE: None if due_at is None else written(due_at)}
        return self.body(change, given, {"retries": claim.retries, "version": claim.version}) | write.results

    def held(self, claim: Claim) -> Query:
        """Return the filters of the fence: the row is running, and by this claim."""
        table = self.table
        by = ((column(table.worker), equals(claim.worker)), (column(table.started_at), equals(claim.started_at)))
        return (*self._is(table.running), *by)

    def probe(self) -> Body:
        """Return a body with every column that a claim writes, to find out whether the key may write them."""
        return self.body(self.changes.claimed, {Given.WORKER: ""})

    def stale(self, before: datetime | None, limit: int) -> Request:
        """Return the query for running rows without a heartbeat since an instant; None: for all running rows."""
        longest_silent = f"{column(str(self.table.heartbeat))}.asc"
        return self.get([self.table.key, *self._as_found()], self._is_stale(before), longest_silent, limit)

    def heard_at(self, row: Body) -> str | None:
        """Return the last heartbeat of a row, or its start if it has none."""
        sign: str | None = row[str(self.table.heartbeat)] or row[self.table.started_at]
        return sign

    def rescues(self, rows: Sequence[Body]) -> Iterator[Request]:
        """Yield requests that take rows back, each only if it has not changed since it was read."""
        table, groups = self.table, dict[tuple[Any, ...], list[Any]]()
        for row in rows:
            groups.setdefault(tuple(row[name] for name in self._as_found()), []).append(row[table.key])
        for values, keys in groups.items():
            found = dict(zip(self._as_found(), values, strict=True))
            filters = (*self._is(table.running), *((column(name), equals(value)) for name, value in found.items()))
            body = self._rescued(found)
            for whole in self.by_keys(filters, keys):
                yield self.patch([table.key, table.status], whole, body)

    def _rescued(self, found: Body) -> Body:
        """Return the body that takes back a row of a dead worker."""
        table = self.table
        retries = 0 if table.retries is None else found[table.retries] or 0
        change = self.changes.lost(is_last=table.retries is not None and retries + 1 >= table.attempts)
        given = {Given.LOST: lost_error(table, found[table.worker], retries)}
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
