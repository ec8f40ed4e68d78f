"""Claims in Postgres, see `tables/claiming.py`, and the doubts about claims whose answer got lost.

Promises: all rows of a claim have one start, by the database's clock. A claim reads it back as it was stored, for the
column may round it and a trigger may change it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence

import asyncpg

from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import BadInput
from everpoll.tables.claiming import Claimed, Claiming
from everpoll.tables.claims import Claim
from everpoll.tables.postgres.statements import Statements
from everpoll.tables.statements import Values

logger = logging.getLogger("everpoll.tables")

REFUSED = (asyncpg.PostgresError, BadInput)
"""A table refuses a change by its triggers, its constraints, the types of its columns; as a lane raises them.

Such a statement has changed nothing, and may be tried for fewer rows. An outage or a missing column is none of these:
see `drivers.postgres.faults`."""
SECOND_CHECK_S = 60.0
"""A statement may reach the server late, by a connection that broke: so doubts are checked twice."""


class Doubts:
    """The claims of one worker whose outcome is unknown.

    An answer can get lost: the connection breaks, the call times out or is canceled after the server has committed.
    Then the table has a row of this worker that no handler runs, and without a heartbeat column no rescue takes it
    back. So a claim whose outcome is unknown is a doubt, and the next look first hands back every row of this worker
    that no handler here runs. A new connection is a doubt, too: its server may have lost settlements (a failover, a
    crash with asynchronous commits).

    Only a worker with a unique id may do that. Two processes may have been given one `WORKER_ID`, and each would take
    away the other's rows; theirs are left to the rescue.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_at: list[float] = []
        self._was_connected = False
        self.is_id_unique = False

    def begin(self) -> None:
        """Note that a claim may be committed without an answer."""
        now = self._clock()
        self._due_at = [now, now + SECOND_CHECK_S]

    def connected(self) -> None:
        """Note a new connection: answers on the old one may be lost. One look finds all rows of such claims."""
        if self._was_connected:
            now = self._clock()
            self._due_at = [now, *(one for one in self._due_at if one > now)]
        self._was_connected = True

    def are_due(self) -> bool:
        """Return True if rows must be handed back now."""
        return self.is_id_unique and bool(self._due_at) and self._due_at[0] <= self._clock()

    @property
    def are_left(self) -> bool:
        """True if the outcome of any claim is unknown."""
        return self.is_id_unique and bool(self._due_at)

    def settled(self) -> None:
        """Note that the rows of all doubtful claims have been handed back."""
        self._due_at = self._due_at[1:]


class PostgresClaiming(Claiming):
    """The lane for claims of one table, in one process."""

    def __init__(self, lane: Lane, statements: Statements) -> None:
        self._lane = lane
        self.statements = statements
        self._table = statements.table

    def is_refusal(self, error: Exception) -> bool:
        """See `Claiming`."""
        return isinstance(error, REFUSED)

    async def claim(self, worker: str, most: int) -> list[Claimed] | None:
        """See `Claiming`."""
        if self._table.guard != "skip_locked":
            return None
        return self._claimed(worker, await self._lane.rows(self.statements.claim, worker, most))

    async def look(self, most: int) -> list[Values]:
        """See `Claiming`."""
        return await self._lane.rows(self.statements.poll, most)

    async def take(self, worker: str, rows: Sequence[Values]) -> list[Claimed]:
        """See `Claiming`."""
        columns = [[row[number] for row in rows] for number in range(len(rows[0]))]
        return self._claimed(worker, await self._lane.rows(self.statements.claim_seen, worker, *columns))

    def _claimed(self, worker: str, rows: Sequence[Values]) -> list[Claimed]:
        claimed: list[Claimed] = []
        started_at = rows[0][1] if rows else None
        for row in rows:
            # One object for all that is equal: settling groups by it.
            if row[1] != started_at:
                started_at = row[1]
            claimed.append(Claimed(Claim(row[0], worker, started_at), row[2] + 1, self.statements.read(row[3:])))
        return claimed

    async def waits(self) -> tuple[bool, float | None]:
        """See `Claiming`."""
        if self._table.guard != "skip_locked" and self._table.due_at is None:
            return False, None
        is_due, next_due_s = await self._lane.row(self.statements.waits)
        return is_due, None if next_due_s is None else max(0.0, next_due_s)

    async def recover(self, worker: str, held: Iterable[Claim]) -> None:
        """Hand back this worker's rows whose claim was never answered. `held`: the claims that were answered."""
        try:
            await self._lane.rows(*self.statements.recover(worker, held))
        except REFUSED as error:
            logger.warning("table %s: what was claimed unknowingly is left to the rescue: %s", self._table.name, error)
