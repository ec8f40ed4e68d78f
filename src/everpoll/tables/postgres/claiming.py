"""Claiming: a row that waits becomes ours in one guarded write.

    skip_locked   one statement: the best rows that are not locked
    status        a look, then a write of what still waits
    version       a look, then a write of what still waits in the version that was seen
    timestamp     a look, then a write of what still waits and was not changed since it was seen

Promises: every guard asks for the word for waiting, so workers with different guards are safe together. A lost race
raises nothing: fewer rows, and `missed` says how many. All rows of a claim have one start, the database's; what was
really stored is read back, whatever precision the column has or a trigger makes of it. If the table refuses a row, the
rows of that batch are claimed one by one, and the refused row is left alone for a while.
"""

import logging
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.stores.contract import LEASE_LIMIT, Lease, Leased
from everpoll.tables.claims import Claim, Claims
from everpoll.tables.postgres.doubts import Doubts
from everpoll.tables.postgres.refused import REFUSED
from everpoll.tables.postgres.statements import LOCKED, Phrases
from everpoll.tables.refusals import Refusals
from everpoll.tables.sql_names import identifier

logger = logging.getLogger("everpoll.tables")

SEEN = {"version": "version", "timestamp": "updated_at"}
"""What a guard compares beside the status, by the column's use."""


class Claiming:
    """The lane for claims of one table, in one process."""

    def __init__(self, lane: Lane, phrases: Phrases, claims: Claims, doubts: Doubts) -> None:
        self._lane = lane
        self._claims = claims
        self._doubts = doubts
        self._table = phrases.table
        self._refusals = Refusals(phrases.table.name, "claimed")
        self._claim = claim(phrases)
        self._poll = poll(phrases)
        self._claim_seen = claim_seen(phrases)
        self._waits = waits(phrases)
        self._recover = recover(phrases)
        columns = phrases.relation.columns
        self._json = [name for name in phrases.table.columns if columns[name].base in {"json", "jsonb"}]
        self.worker = ""

    async def lease(self, most: int) -> Leased:
        """See the contract."""
        if self._doubts.are_due():
            await self.recover()
        most = max(0, min(most, LEASE_LIMIT))
        if not most:
            return Leased([])
        try:
            rows, seen = await self._picked(most)
        except REFUSED:
            raise  # it has changed nothing
        except BaseException as error:
            # A cancellation as well: the server may have claimed rows that this worker never hears of.
            if not isinstance(error, EverpollError) or isinstance(error, StoreUnavailable):
                self._doubts.begin()
            raise
        missed = seen - len(rows)
        if rows:
            return Leased(self._taken(rows), None, missed)
        if missed:
            return Leased([], 0.0, missed)
        return Leased([], await self._next_due_s())

    async def _picked(self, most: int) -> tuple[list[Any], int]:
        """The rows that are ours now, and how many were to be had."""
        refused = self._refusals.known()
        if not refused:
            try:
                return await self._lane.call(lambda connection: self._claimed(connection, most))
            except REFUSED:
                pass
        seen = await self._lane.rows(self._poll, most + len(refused))
        seen = [row for row in seen if row[0] not in refused][:most]
        if not seen:
            return [], 0
        try:
            return await self._take_seen(seen), len(seen)
        except REFUSED:
            return await self._picked_singly(seen)

    async def _picked_singly(self, seen: list[Any]) -> tuple[list[Any], int]:
        """Each for itself. An error only where there was nothing else: the poller counts it, and rests."""
        rows: list[Any] = []
        refused: list[Exception] = []
        for one in seen:
            try:
                rows += await self._take_seen([one])
            except REFUSED as error:
                self._refusals.add(one[0], error)
                refused.append(error)
        if refused and not rows:
            raise refused[0]
        return rows, len(seen) - len(refused)

    async def _take_seen(self, seen: list[Any]) -> list[Any]:
        columns = [[row[number] for row in seen] for number in range(len(seen[0]))]
        return await self._lane.rows(self._claim_seen, self.worker, *columns)

    async def _claimed(self, connection: Connection, most: int) -> tuple[list[Any], int]:
        """The rows that are ours now, and how many were seen."""
        if self._table.guard == "skip_locked":
            rows = await connection.fetch(self._claim, self.worker, most)
            return rows, len(rows)
        seen = await connection.fetch(self._poll, most)
        if not seen:
            return [], 0
        columns = [[row[number] for row in seen] for number in range(len(seen[0]))]
        return await connection.fetch(self._claim_seen, self.worker, *columns), len(seen)

    def _taken(self, rows: list[Any]) -> list[Lease]:
        leases: list[Lease] = []
        columns, worker, started_at = self._table.columns, self.worker, rows[0][1]
        for row in rows:
            values = dict(zip(columns, row[3:], strict=True))
            for column in self._json:
                if values[column] is not None:
                    values[column] = msgspec.json.decode(values[column])
            # One object for all that is equal: settling groups by it.
            if row[1] != started_at:
                started_at = row[1]
            leases.append(self._claims.take(Claim(row[0], worker, started_at), row[2] + 1, values))
        return leases

    async def _next_due_s(self) -> float | None:
        """After a look that brought nothing; 0: something is due, and another transaction has it locked."""
        if self._table.guard != "skip_locked" and self._table.due_at is None:
            return None
        row = await self._lane.row(self._waits)
        # What is refused is due all the time, and no reason to hurry.
        if row[0] and not self._refusals.known():
            return 0.0
        return None if row[1] is None else max(0.0, row[1])

    async def recover(self) -> None:
        """Hand back rows that the table shows as ours and whose claim was never answered."""
        held = self._claims.all().values()
        keys, starts = [one.key for one in held], [one.started_at for one in held]
        try:
            await self._lane.rows(self._recover, keys, starts, self.worker)
        except REFUSED as error:
            logger.warning("table %s: what was claimed unknowingly is left to the rescue: %s", self._table.name, error)
        self._doubts.settled()


def claim(phrases: Phrases) -> str:
    """$1 worker, $2 how many."""
    best = f"select {phrases.place} from {phrases.name} where {phrases.is_due} order by {phrases.ordered} limit $2"
    return _claimed(phrases, f"{best} {LOCKED}")


def poll(phrases: Phrases) -> str:
    """The look for rows that wait, $1 how many: what the index is for."""
    seen = SEEN.get(phrases.table.guard)
    outputs = phrases.key_out if seen is None else f"{phrases.key_out}, {_seen(phrases, seen)} as v"
    return f"select {outputs} from {phrases.name} where {phrases.is_due} order by {phrases.ordered} limit $1"


def claim_seen(phrases: Phrases) -> str:
    """Those that are as they were seen. $1 worker, $2 keys, $3 versions or times of change."""
    seen = SEEN.get(phrases.table.guard)
    if seen is None:
        still = f"select {phrases.place} from {phrases.name} where {phrases.key} = any($2::{phrases.keys_in})"
    else:
        kind = "int8" if seen == "version" else phrases.column_of(seen).base
        rows = f"unnest($2::{phrases.keys_in}, $3::{kind}[]) as u (k, v) join {phrases.name} on {phrases.key} = u.k"
        still = f"select {phrases.place} from {rows} where {_seen(phrases, seen)} is not distinct from u.v"
    waits_still = phrases.is_still(phrases.table.queued) + phrases.and_it_is_time
    return _claimed(phrases, f"{still} and {waits_still} {LOCKED}")


def _seen(phrases: Phrases, use: str) -> str:
    return f"{phrases.at(use)}::int8" if use == "version" else phrases.at(use)


def _claimed(phrases: Phrases, picked: str) -> str:
    """Whatever was picked, and is locked, becomes ours; in the order of the queue, with what the handler reads."""
    table = phrases.table
    values = {"status": phrases.word(table.running), "worker": f"$1::{phrases.worker_type}"}
    sets = phrases.sets(values | {"started_at": "now()", "heartbeat": "now()"})
    read = [_read(phrases, name) for name in table.columns]
    outputs = [phrases.key_out, f"{phrases.at('started_at')} as s", f"{phrases.retries}::int8 as r"]
    outputs += [f"{one} as c{number}" for number, one in enumerate(read)]
    outputs += [f"t.{identifier(name)} as o{number}" for number, (name, _) in enumerate(phrases.order)]
    names = ", ".join(["k", "s", "r", *(f"c{number}" for number in range(len(read)))])
    by = ", ".join(f"o{number}{way}" for number, (_, way) in enumerate(phrases.order))
    return (
        f"with picked as materialized ({picked}), claimed as (update {phrases.name} set {sets} "
        f"where {phrases.is_one_of('picked')} and {phrases.is_still(table.queued)} "
        f"returning {', '.join(outputs)}) select {names} from claimed order by {by}"
    )


def _read(phrases: Phrases, name: str) -> str:
    # The driver would ask the server about an enum's type first.
    is_enum = phrases.relation.columns[name].category == "E"
    return f"t.{identifier(name)}::text" if is_enum else f"t.{identifier(name)}"


def waits(phrases: Phrases) -> str:
    """Whether something is due although nothing was to be had, and in how many seconds the next one is."""
    is_there = f"exists(select from {phrases.name} where {phrases.is_due})"
    if phrases.table.due_at is None:
        return f"select {is_there}, null::float8"
    due = phrases.instant("due_at")
    return (
        f"select {is_there}, (select extract(epoch from min({due}) - now())::float8 from {phrases.name} "
        f"where {phrases.has_status(phrases.table.queued)} and {due} > now())"
    )


def recover(phrases: Phrases) -> str:
    """$1 keys and $2 starts that the worker knows of, $3 worker: the others that it has wait again."""
    fence = phrases.is_ours("$3")
    known = f"select from {phrases.held()} as u (k, s) where u.k = {phrases.key} and u.s = {phrases.at('started_at')}"
    is_there = f"{phrases.has_status(phrases.table.running)} and {fence}"
    unknown = f"select {phrases.place} from {phrases.name} where {is_there} and not exists({known}) {LOCKED}"
    sets = phrases.sets({"status": phrases.word(phrases.table.queued)} | phrases.emptied)
    return (
        f"with unknown as materialized ({unknown}) update {phrases.name} set {sets} "
        f"where {phrases.is_one_of('unknown')} and {fence} returning 1"
    )
