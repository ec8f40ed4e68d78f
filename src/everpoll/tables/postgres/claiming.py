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
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.errors import BadInput, EverpollError, StoreUnavailable
from everpoll.stores.contract import Lease, Leased
from everpoll.tables.claims import Claim, Claims
from everpoll.tables.postgres.statements import Statements
from everpoll.tables.refusals import Refusals

logger = logging.getLogger("everpoll.tables")

REFUSED = (asyncpg.PostgresError, BadInput)
"""A table refuses a change by its triggers, its constraints, the types of its columns; as a lane raises them.

Such a statement has changed nothing, and may be tried for fewer rows. An outage or a missing column is none of these:
see `drivers.postgres.faults`."""
SECOND_LOOK_S = 60.0
"""A statement may still lie unread in a dead connection while a new one overtakes it: so a doubt is settled twice."""


def is_refusal(error: Exception) -> bool:
    """Whether the table refuses a change."""
    return isinstance(error, REFUSED)


class Doubts:
    """What one worker may have claimed without knowing.

    An answer can get lost: the connection breaks, the call times out or is canceled after the server has committed.
    Then a row stands in the table as ours, no handler runs it, and without a heartbeat column no rescue ever takes it
    back. So a claim whose outcome is unknown is a doubt, and the next look first hands back every row that the table
    shows as ours and that no handler here has. A new connection is one, too: its server may have forgotten what was
    settled (a failover, a crash with asynchronous commits).

    Only a worker whose id is its own may do that: `WORKER_ID` may have been given to two processes, and each would take
    away the other's rows. Theirs are left to the rescue.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_at: list[float] = []
        self._was_connected = False
        self.is_id_unique = False

    def begin(self) -> None:
        """A claim may have been made without an answer."""
        now = self._clock()
        self._due_at = [now, now + SECOND_LOOK_S]

    def connected(self) -> None:
        """The server may have forgotten what it answered. One look is enough: what is to be found is there already."""
        if self._was_connected:
            now = self._clock()
            self._due_at = [now, *(one for one in self._due_at if one > now)]
        self._was_connected = True

    def are_due(self) -> bool:
        """Whether something is to be handed back now."""
        return self.is_id_unique and bool(self._due_at) and self._due_at[0] <= self._clock()

    @property
    def are_left(self) -> bool:
        """Whether there is a doubt at all."""
        return self.is_id_unique and bool(self._due_at)

    def settled(self) -> None:
        """Unknown claims have been handed back."""
        self._due_at = self._due_at[1:]


class Claiming:
    """The lane for claims of one table, in one process."""

    def __init__(self, lane: Lane, statements: Statements, claims: Claims, doubts: Doubts) -> None:
        self._lane = lane
        self._claims = claims
        self._doubts = doubts
        self._table = statements.table
        self._refusals = Refusals(statements.table.name, "claimed")
        self._claim, self._poll, self._claim_seen = statements.claim, statements.poll, statements.claim_seen
        self._waits, self._recover = statements.waits, statements.recover
        columns = statements.relation.columns
        self._json = [name for name in statements.table.columns if columns[name].base in {"json", "jsonb"}]

    async def lease(self, worker: str, most: int) -> Leased:
        """See the contract."""
        if self._doubts.are_due():
            await self.recover(worker)
        try:
            rows, seen = await self._picked(worker, most)
        except REFUSED:
            raise  # it has changed nothing
        except BaseException as error:
            # A cancellation as well: the server may have claimed rows that this worker never hears of.
            if not isinstance(error, EverpollError) or isinstance(error, StoreUnavailable):
                self._doubts.begin()
            raise
        missed = seen - len(rows)
        if rows:
            return Leased(self._taken(worker, rows), None, missed)
        if missed:
            return Leased([], 0.0, missed)
        return Leased([], await self._next_due_s())

    async def _picked(self, worker: str, most: int) -> tuple[list[Any], int]:
        """The rows that are ours now, and how many were to be had."""
        refused = self._refusals.known()
        if not refused:
            try:
                if self._table.guard == "skip_locked":
                    rows = await self._lane.rows(self._claim, worker, most)
                    return rows, len(rows)
                return await self._lane.call(lambda connection: self._look_and_take(connection, worker, most))
            except REFUSED:
                pass
        seen = await self._lane.rows(self._poll, most + len(refused))
        seen = [row for row in seen if row[0] not in refused][:most]
        try:
            return await self._taken_of(worker, seen), len(seen)
        except REFUSED:
            taken: list[Any] = []
            by_key = {row[0]: row for row in seen}
            refusals = await self._refusals.each(by_key, lambda row: self._taken_of(worker, [row]), is_refusal, taken)
            return taken, len(seen) - refusals

    async def _taken_of(self, worker: str, seen: list[Any]) -> list[Any]:
        return await self._lane.call(lambda connection: self._take(connection, worker, seen))

    async def _look_and_take(self, connection: Connection, worker: str, most: int) -> tuple[list[Any], int]:
        seen = await connection.fetch(self._poll, most)
        return await self._take(connection, worker, seen), len(seen)

    async def _take(self, connection: Connection, worker: str, seen: list[Any]) -> list[Any]:
        return await connection.fetch(self._claim_seen, worker, *map(list, zip(*seen, strict=True))) if seen else []

    def _taken(self, worker: str, rows: list[Any]) -> list[Lease]:
        leases: list[Lease] = []
        columns, started_at = self._table.columns, rows[0][1]
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

    async def recover(self, worker: str) -> None:
        """Hand back rows that the table shows as ours and whose claim was never answered."""
        held = self._claims.all().values()
        keys, starts = [one.key for one in held], [one.started_at for one in held]
        try:
            await self._lane.rows(self._recover, keys, starts, worker)
        except REFUSED as error:
            logger.warning("table %s: what was claimed unknowingly is left to the rescue: %s", self._table.name, error)
        self._doubts.settled()
