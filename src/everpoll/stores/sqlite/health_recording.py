"""Recording looks: rows in the order of their arrival, and for each service a chain through its looks.

    heads ──look──▶ newest look ──previous──▶ the one before ──▶ … ──▶ the oldest that is not rolled up

Promises: a chain is in the order of instants, also where a look arrives late. What is recorded already, rolled up or
not, is left out. Ids grow: the newest row is never deleted, so a chain never leads to a row of another look.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from everpoll.drivers.sqlite.bulk import ROWS, write_rows
from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import encode
from everpoll.stores.health_batches import DependencyRow, ErrorRow, ServiceBatch
from everpoll.stores.health_chunks import HOUR_MS, LookRow, unpack_looks
from everpoll.stores.health_ranges import Horizon

# All rows as one text: each row that is fetched separately waits for the interpreter's lock.
HEADS = """select json_group_array(json_array(s.name, s.id, h.look, h.at_ms, h.rolled, h.open_ms, h.packed_ms))
    from json_each(?) j cross join everpoll_health_services s on s.name = j.value
    left join everpoll_health_heads h on h.service = s.id"""
ADD_SERVICES = "insert into everpoll_health_services (name) values {rows} on conflict (name) do nothing"
LAST = "select max(id) from everpoll_health_looks"
ADD_LOOKS = """insert into everpoll_health_looks
    (id, previous, service, at_ms, span_ms, status, latency_us, http_status, error, latencies) values {rows}"""
LINK = "update everpoll_health_looks set previous = ? where id = ?"
SET_HEADS = """insert into everpoll_health_heads (service, look, at_ms, rolled, open_ms, packed_ms)
    values {rows} on conflict (service) do update
    set look = excluded.look, at_ms = excluded.at_ms, rolled = excluded.rolled, open_ms = excluded.open_ms,
        packed_ms = excluded.packed_ms"""
PACKED = "select looks from everpoll_health_packed where hour = ? and service = ?"
HORIZON = "select looks, minutes, hours, errors_ms from everpoll_health_horizon"
# Down the chain until a look that is not later than the wanted one.
PLACE = """with recursive chain (id, previous, at_ms) as (
        select id, previous, at_ms from everpoll_health_looks where id = :look and id > :rolled
        union all select l.id, l.previous, l.at_ms from chain c cross join everpoll_health_looks l
        where l.id = c.previous and l.id > :rolled and c.at_ms > :at_ms)
    select id, previous, at_ms from chain"""

_COLUMNS = ", ".join(DependencyRow._fields)
_NEWER = ", ".join(f"{name} = excluded.{name}" for name in DependencyRow._fields if name != "name")
SET_DEPENDENCIES = f"""insert into everpoll_health_dependencies (service, {_COLUMNS})
    values {ROWS} on conflict (service, name) do update set {_NEWER}
    where excluded.at_ms > everpoll_health_dependencies.at_ms"""
ADD_ERRORS = f"""insert into everpoll_health_errors (service, {", ".join(ErrorRow._fields)})
    values {ROWS} on conflict (service, dependency, at_ms) do nothing"""

NONE_MS = -1

_decode_heads = msgspec.json.Decoder(list[tuple[str, int, Any, Any, Any, Any, Any]]).decode


@dataclass(slots=True)
class Head:
    """The first look of the chain of a service, and up to which look it is rolled up."""

    service: int
    look: int = 0
    at_ms: int = NONE_MS
    rolled: int = 0
    open_ms: int = NONE_MS
    packed_ms: int = NONE_MS

    @property
    def is_empty(self) -> bool:
        """Every look is rolled up."""
        return self.look <= self.rolled

    def opened(self, at_ms: int) -> None:
        """Note that a look is about to join the chain."""
        self.open_ms = at_ms if self.is_empty else min(self.open_ms, at_ms)

    @property
    def row(self) -> tuple[int, ...]:
        """Return the row as it is stored."""
        return (self.service, self.look, self.at_ms, self.rolled, self.open_ms, self.packed_ms)


def record(con: Connection, batch: Mapping[str, ServiceBatch]) -> None:
    """Write the looks that are not recorded yet."""
    heads = _heads(con, batch)
    writing = _Writing(con, max((head.rolled for head in heads.values()), default=0))
    changed = [head for name, head in heads.items() if writing.add(head, batch[name].looks.values())]
    write_rows(con, ADD_LOOKS, writing.rows)
    write_rows(con, SET_HEADS, [head.row for head in changed])
    horizon_ms = writing.horizon.errors_ms
    dependencies = [
        (heads[name].service, *row)
        for name, of_service in batch.items()
        for row in of_service.dependencies.values()
        if row.at_ms >= horizon_ms
    ]
    write_rows(con, SET_DEPENDENCIES, dependencies)
    errors = [
        (heads[name].service, *row)
        for name, of_service in batch.items()
        for row in of_service.errors.values()
        if row.at_ms >= horizon_ms
    ]
    write_rows(con, ADD_ERRORS, errors)


def horizon_of(con: Connection) -> Horizon:
    """Return the instants up to which records were pruned."""
    row = con.execute(HORIZON).fetchone()
    return Horizon() if row is None else Horizon(*row)


def _heads(con: Connection, names: Collection[str]) -> dict[str, Head]:
    wanted = (encode(list(names)),)
    found = _decode_heads(con.execute(HEADS, wanted).fetchone()[0])
    if len(found) < len(names):
        known = {row[0] for row in found}
        write_rows(con, ADD_SERVICES, [(name,) for name in names if name not in known])
        found = _decode_heads(con.execute(HEADS, wanted).fetchone()[0])
    return {name: Head(service) if head[0] is None else Head(service, *head) for name, service, *head in found}


class _Writing:
    """Writes one batch of looks into the chains of their services."""

    def __init__(self, con: Connection, rolled: int) -> None:
        self._con = con
        # Above every row, and above what counts as rolled up of these services.
        self._next_id = max(con.execute(LAST).fetchone()[0] or 0, rolled) + 1
        self.horizon = horizon_of(con)
        self.rows: list[tuple[int | str | bytes | None, ...]] = []
        """Looks that are newer than all of their service, to be inserted together."""

    def add(self, head: Head, looks: Iterable[LookRow]) -> bool:
        """Add looks to the chain of a service, in the order of their instants; return whether any was new."""
        before = self._next_id
        for row in looks:
            if row.at_ms > head.at_ms:
                head.opened(row.at_ms)
                previous, head.look, head.at_ms = head.look, self._next_id, row.at_ms
                self.rows.append(self._values(head, previous, row))
            elif not self._is_known(head, row.at_ms):
                self._add_late(head, row)
        return self._next_id > before

    def _values(self, head: Head, previous: int | None, row: LookRow) -> tuple[int | str | bytes | None, ...]:
        self._next_id += 1
        return (self._next_id - 1, previous, head.service, *row)

    def _is_known(self, head: Head, at_ms: int) -> bool:
        if any(one[2] == at_ms for one in self._down_to(head, at_ms)):
            return True
        if at_ms > head.packed_ms:
            return False
        hour = at_ms // HOUR_MS
        if hour < self.horizon.looks:
            return True
        packed = self._con.execute(PACKED, (hour, head.service)).fetchone()
        return packed is not None and any(row.at_ms == at_ms for row in unpack_looks(hour * HOUR_MS, packed[0]))

    def _add_late(self, head: Head, row: LookRow) -> None:
        """Insert a look in its place, between the one after it and the one before it."""
        after = before = None
        for look_id, previous, at_ms in self._down_to(head, row.at_ms):
            if at_ms < row.at_ms:
                before = look_id
                break
            after, before = look_id, previous
        late_id = self._next_id
        write_rows(self._con, ADD_LOOKS, [self._values(head, before, row)])
        head.opened(row.at_ms)
        if after is None:
            head.look = late_id
        else:
            self._con.execute(LINK, (late_id, after))

    def _down_to(self, head: Head, at_ms: int) -> list[tuple[int, int | None, int]]:
        """(id, previous, at_ms) of the looks that are later, and of the next one."""
        return self._con.execute(PLACE, {"look": head.look, "rolled": head.rolled, "at_ms": at_ms}).fetchall()
