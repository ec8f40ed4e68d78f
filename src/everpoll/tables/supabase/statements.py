"""The requests, made from the mapping: what is asked and what is written, and under which condition.

Promises: every write carries its whole condition in the address, so PostgREST makes one UPDATE of it that changes a row
only where all of it holds; the changed rows come back. Only the needed columns are selected.
Never: decides anything. What time it is comes in as a parameter, or as the word `now`, which the database reads.
"""

from collections.abc import Container, Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from msgspec import UNSET, UnsetType

from everpoll.tables.claims import Claim
from everpoll.tables.mapping import Table
from everpoll.tables.outcome import RowWrite, lost_text
from everpoll.tables.supabase.clock import written
from everpoll.tables.supabase.filters import Query, chunks, column, equals, one_of, quoted, text_of
from everpoll.tables.supabase.http import Request

NOW = "now"
"""Read by Postgres, by its own clock, when the statement runs."""
Body = dict[str, Any]


class HttpClaim(Claim, frozen=True, gc=False):
    """A claimed row, with the figures that can only be written whole over HTTP."""

    retries: int = 0
    version: int | None = None
    """As it was claimed; later writes raise it further."""


class Statements:
    """For one table. `required` are the columns that do not take NULL: those keep what they have."""

    def __init__(self, table: Table, required: Container[str] = frozenset()) -> None:
        self.table = table
        self._required = required
        *schema, name = table.parts
        self.path = "/" + quote(name, safe="")
        self._reading = {"Accept-Profile": schema[0]} if schema else {}
        self._writing = {"Content-Profile": schema[0]} if schema else {}
        self.read = list(dict.fromkeys([table.key, *self._taken(), *table.columns]))
        """What a claim brings back."""

    def _taken(self) -> list[str]:
        table = self.table
        found = [table.started_at, table.heartbeat, table.retries, self.seen]
        return [name for name in found if name is not None]

    @property
    def seen(self) -> str | None:
        """The column that must be as it was seen, by the guard."""
        return {"version": self.table.version, "timestamp": self.table.updated_at}.get(self.table.guard)

    def get(self, names: Sequence[str], filters: Query, order: str | None = None, limit: int | None = None) -> Request:
        """Rows, with these columns."""
        query = [("select", ",".join(column(name) for name in names)), *filters]
        if order is not None:
            query.append(("order", order))
        if limit is not None:
            query.append(("limit", str(limit)))
        return Request(method="GET", path=self.path, query=tuple(query), headers=self._reading)

    def patch(self, names: Sequence[str], filters: Query, body: Body) -> Request:
        """Change what the filters leave; the changed rows come back, with these columns.

        Never with `or`: PostgREST applies it to what comes back as well, after the change, so a row would be changed
        and not reported.
        """
        assert not any(name in {"or", "and"} for name, _ in filters), "see above"
        select = ("select", ",".join(column(name) for name in names))
        headers = {**self._writing, "Prefer": "return=representation"}
        return Request(method="PATCH", path=self.path, query=(select, *filters), body=body, headers=headers)

    def call(self, function: str, arguments: Body) -> Request:
        """A function of ours in the database."""
        return Request(method="POST", path=f"/rpc/{function}", body=arguments, headers=self._writing)

    def by_keys(self, filters: Query, keys: Sequence[Any]) -> Iterator[Query]:
        """The filters for as many keys as an address has room for, part by part."""
        table = self.table
        taken = len(self.get(self.read, filters).target) + len(quote(column(table.key), safe="")) + len("=in.%28%29&")
        for part in chunks(keys, taken):
            yield ((column(table.key), one_of(part)), *filters)

    def candidates(self, limit: int) -> Request:
        """The best rows that wait and are due, by key, with what the guard must find again."""
        table = self.table
        names = [table.key] if self.seen is None else [table.key, self.seen]
        return self.get(names, (*self._is(table.queued), *self._is_due()), self._order(), limit)

    def later(self) -> Request | None:
        """The next row that falls due; None: rows of this table are always due."""
        due_at = self.table.due_at
        if due_at is None:
            return None
        waits = (*self._is(self.table.queued), (column(due_at), f"gt.{NOW}"))
        return self.get([due_at], waits, f"{column(due_at)}.asc", 1)

    def claims(
        self, candidates: Sequence[Body], worker: str, started_at: datetime, is_exact: bool
    ) -> Iterator[Request]:
        """One request for each part of the candidates that can be claimed under one condition.

        Of a clock that may be wrong, or a second behind, others must not judge an age: then the database writes the
        heartbeat by its own.
        """
        table, groups = self.table, dict[Any, list[Any]]()
        for row in candidates:
            groups.setdefault(None if self.seen is None else row[self.seen], []).append(row[table.key])
        body = {table.status: table.running, table.worker: worker, table.started_at: written(started_at)}
        body |= _if(table.heartbeat, written(started_at) if is_exact else NOW)
        for seen, keys in groups.items():
            filters = self._is(table.queued)
            if self.seen is not None:
                filters += ((column(self.seen), equals(seen)),)
            touched = self.touched(seen if table.guard == "version" else None)
            for whole in self.by_keys(filters, keys):
                yield self.patch(self.read, whole, body | touched)

    def claimed(self, worker: str, started_at: datetime, after: Any, limit: int) -> Request:
        """The rows of a claim whose answer got lost, by key, from that key on."""
        key = column(self.table.key)
        later = () if after is None else ((key, f"gt.{text_of(after)}"),)
        return self.get(self.read, (*self._fence(worker, written(started_at)), *later), f"{key}.asc", limit)

    def unclaim(self, worker: str, started_at: datetime) -> Request:
        """Put back all that a claim may have brought."""
        body = self.waiting() | (self.touched(None) if self.table.guard == "timestamp" else {})
        return self.patch([self.table.key], self._fence(worker, written(started_at)), body)

    def settles(self, claim: Claim, version: int | None, keys: Sequence[Any], body: Body) -> Iterator[Request]:
        """Write the same into rows that were claimed together and are still held."""
        filters = self.held(claim)
        if self.table.guard == "version":
            filters += ((column(self.table.version), equals(version)),)
        finished_at = self.table.finished_at
        names = [self.table.key, *([finished_at] if finished_at is not None and finished_at in body else [])]
        for whole in self.by_keys(filters, keys):
            yield self.patch(names, whole, body | self.touched(version))

    def beats(self, claim: Claim, keys: Sequence[Any]) -> Iterator[Request]:
        """A sign of life for rows that were claimed together; without a column for it, just whether they are ours.

        It does not count as a change of the row: version and time of change stay.
        """
        table = self.table
        for whole in self.by_keys(self.held(claim), keys):
            if table.heartbeat is None:
                yield self.get([table.key], whole)
            else:
                yield self.patch([table.key, table.heartbeat], whole, {table.heartbeat: NOW})

    def holds(self, claim: Claim, keys: Sequence[Any]) -> Iterator[Request]:
        """Whether rows that were claimed together are still held."""
        for whole in self.by_keys(self.held(claim), keys):
            yield self.get([self.table.key], whole)

    def versions(self, claim: Claim, keys: Sequence[Any]) -> Iterator[Request]:
        """The versions of rows that were claimed together and are still held."""
        for whole in self.by_keys(self.held(claim), keys):
            yield self.get([self.table.key, self.table.version], whole)

    def states(self, keys: Sequence[Any]) -> Iterator[Request]:
        """These rows as they stand."""
        table = self.table
        names = [table.key, table.status, table.worker, table.started_at]
        for whole in self.by_keys((), keys):
            yield self.get(names, whole)

    def settled(self, write: RowWrite, claim: HttpClaim, due_at: datetime | None) -> Body:
        """What a settlement writes into its row, beside what the guard wants."""
        table = self.table
        body: Body = {} if write.is_end else self.waiting()
        body[table.status] = write.status
        body |= _if(table.finished_at, NOW if write.is_end else UNSET)
        body |= _if(table.due_at, UNSET if due_at is None else written(due_at))
        body |= _if(table.error, UNSET if write.keeps_error else self._text(table.error, write.error))
        body |= _if(table.retries, claim.retries + write.retries if write.retries else UNSET)
        return body | write.results

    def held(self, claim: Claim) -> Query:
        """The fence: still running, and still by this claim."""
        return self._fence(claim.worker, claim.started_at)

    def waiting(self) -> Body:
        """A queued row has no worker."""
        table = self.table
        empty = [table.worker, table.started_at, table.heartbeat]
        return {table.status: table.queued} | {
            name: None for name in empty if name is not None and name not in self._required
        }

    def rescued(self, retries: int, worker: str | None) -> Body:
        """What becomes of a row whose worker was declared dead: it is queued again, or has failed."""
        table = self.table
        error = f"worker {worker or '?'}{lost_text(table)}"
        if table.retries is None:
            # Without a column to count in, a row never runs out of attempts: its worker's death is not its failure.
            return self.waiting() | _if(table.error, error)
        is_last = retries + 1 >= table.attempts
        body: Body = {table.status: table.failed} | _if(table.finished_at, NOW) if is_last else self.waiting()
        error += f" (attempt {retries + 1} of {table.attempts})"
        return body | _if(table.error, error) | {table.retries: retries + 1}

    def probe(self) -> Body:
        """Every column that a claim writes: to find out whether it may."""
        table = self.table
        return {table.status: table.running, table.worker: "", table.started_at: NOW} | _if(table.heartbeat, NOW)

    def touched(self, version: int | None) -> Body:
        """What every change sets, for those who guard their own changes with it."""
        match self.table.guard:
            case "version":
                return {self.table.version: (version or 0) + 1}
            case "timestamp":
                return {self.table.updated_at: NOW}
            case _:
                return {}

    def stale(self, before: datetime | None, limit: int) -> Request:
        """Running rows that were not heard of since; None: all of them."""
        longest_silent = f"{column(str(self.table.heartbeat))}.asc"
        return self.get([self.table.key, *self._as_found()], self._is_stale(before), longest_silent, limit)

    def heard_at(self, row: Body) -> str | None:
        """The last sign of life; a row that was claimed without one is as old as its start."""
        sign: str | None = row[str(self.table.heartbeat)] or row[self.table.started_at]
        return sign

    def rescues(self, rows: Sequence[Body]) -> Iterator[Request]:
        """Take rows back, each only if it is as it was found."""
        table, groups = self.table, dict[tuple[Any, ...], list[Any]]()
        for row in rows:
            groups.setdefault(tuple(row[name] for name in self._as_found()), []).append(row[table.key])
        for values, keys in groups.items():
            found = dict(zip(self._as_found(), values, strict=True))
            filters = (*self._is(table.running), *((column(name), equals(value)) for name, value in found.items()))
            body = self.rescued((found[table.retries] or 0) if table.retries else 0, found[table.worker])
            body |= self.touched(found.get(table.version) if table.guard == "version" else None)
            for whole in self.by_keys(filters, keys):
                yield self.patch([table.key, table.status], whole, body)

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

    def _text(self, name: str | None, value: str | None) -> str | None:
        return "" if value is None and name in self._required else value

    def _is(self, word: str) -> Query:
        return ((column(self.table.status), equals(word)),)

    def _fence(self, worker: str, started_at: Any) -> Query:
        table = self.table
        by = ((column(table.worker), equals(worker)), (column(table.started_at), equals(started_at)))
        return (*self._is(table.running), *by)

    def _is_due(self) -> Query:
        due_at = self.table.due_at
        return () if due_at is None else (("or", f"({column(due_at)}.is.null,{column(due_at)}.lte.{NOW})"),)

    def _order(self) -> str:
        table = self.table
        first = [] if table.priority is None else [f"{column(table.priority)}.desc.nullslast"]
        return ",".join([*first, f"{column(table.order_by)}.asc", f"{column(table.key)}.asc"])


def _if(name: str | None, value: Any | UnsetType) -> Body:
    return {} if name is None or value is UNSET else {name: value}
