"""An adopted table as a source of the engine: what holds for every database.

    poller ────▶ claims ───────┐
    settler ───▶ settlements ──┼──▶ the user's table: its columns are all the bookkeeping there is
    heartbeat ─▶ beats ────────┘

Promises: it writes into a row only while the fence of the row is this worker's; once the user changes the status, the
row is the user's. Any program may insert the rows. A lost claim is remembered until the engine has asked whether an
earlier try settled it, or has noted the loss.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import msgspec

from everpoll.drivers.push import PushTask
from everpoll.drivers.wake import OnWake
from everpoll.errors import NotRunning
from everpoll.stores.contract import LEASE_LIMIT, Leased, Settlement, WorkerCard
from everpoll.tables import overview
from everpoll.tables.claiming import Found
from everpoll.tables.claims import Claims
from everpoll.tables.contract import Finding, StatusCount
from everpoll.tables.ddl import Ddl
from everpoll.tables.findings import heartbeat, is_foreign, unfit
from everpoll.tables.heartbeat_connection import Beats, TableHeartbeatConnection
from everpoll.tables.mapping import Table
from everpoll.tables.outages import Outages
from everpoll.tables.outcome import is_as_left, written
from everpoll.tables.overview import Reader, RowState, TableWorker
from everpoll.tables.refusals import Refusals
from everpoll.tables.settling import Settled, batch_of
from everpoll.tables.shape import Shape
from everpoll.tables.statements import Values

C = TypeVar("C", bound=Shape[Any])
W = TypeVar("W")

logger = logging.getLogger("everpoll.tables")


class TableSource(ABC, Generic[C, W]):
    """An adopted table: a `Source` for the engine, and queries about the table for people.

    `C`: its shape in that database. `W`: what is there while it is open.
    """

    beats_in_loop = False
    _place = ""
    """Where the table is, for errors: " in shop.db"."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._shape: C | None = None
        self._found: list[Finding] = []
        """By the last look."""
        self._claims = Claims(table.name)
        self._outages = Outages(table)
        self._refusals = Refusals(table.name, "claimed")
        self._workers: dict[int, str] = {}
        self._opened: W | None = None
        self._push: PushTask | None = None

    @abstractmethod
    async def open(self) -> None:
        """Connect and look at the columns; `TableUnfit` names everything that is missing or wrong, at once."""

    @abstractmethod
    async def close(self) -> None:
        """Close every connection. Repeatable."""

    async def inspect(self) -> list[Finding]:
        """Examine columns and types, the index and whether the poll query uses it (EXPLAIN), push, the heartbeat."""
        shape, found = await self._seen()
        if shape is not None and all(one.what != "table" for one in found):
            self._found = [*found, heartbeat(self.table), *await self._further(shape)]
        return self._found

    async def _fit(self) -> C:
        """Look at the table; raise `TableUnfit` if it does not fit its mapping."""
        shape, found = await self._seen()
        problem = unfit(self.table, shape, found, self._ddl(shape).lacking(shape, found), self._place)
        if problem is not None:
            raise problem
        assert shape is not None, "a table that is not there is not fit"
        return shape

    async def _seen(self) -> tuple[C | None, list[Finding]]:
        self._shape, self._found = await self._examined()
        return self._shape, self._found

    def ddl(self) -> list[str]:
        """Return statements that add what the mapping names: columns, the index of the poll query, the trigger for
        push. Once the table was inspected, only what it lacks.
        """
        return self._ddl(self._shape).lacking(self._shape, self._found)

    @abstractmethod
    async def _examined(self) -> tuple[C | None, list[Finding]]:
        """Read the table's shape, and find what may keep it from use; None: there is no such table."""

    async def _further(self, shape: C) -> list[Finding]:
        """Find what else people should know of a table that can be used, or could if it had its columns."""
        del shape
        return []

    @abstractmethod
    def _ddl(self, shape: C | None) -> Ddl: ...

    @property
    def yield_to_thread(self) -> Callable[[], None] | None:
        """See the contract."""
        return None

    @property
    def has_push(self) -> bool:
        """See the contract."""
        return self._push is not None and self._push.has_push

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        assert self._push is not None, "a table is opened before it is listened to"
        await self._push.add(on_wake)

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        if self._push is not None:
            await self._push.remove(on_wake)

    @abstractmethod
    def _reading(self) -> AbstractAsyncContextManager[Reader[Any]]:
        """Read for people; needs no `open`. Raises `TableUnfit` where the table is not as it is mapped."""

    @abstractmethod
    async def _look(self, worker: str, most: int) -> Found:
        """Claim at most so many rows, by `claim_rows`; first hand back what claims without an answer have brought."""

    @abstractmethod
    async def _settle(self, batch: Sequence[Settled]) -> set[int]:
        """Write the batch; return the ids that were lost."""

    @abstractmethod
    async def _recover(self, worker: str) -> None:
        """Hand back what claims without an answer may have brought to this worker."""

    @abstractmethod
    async def _states(self, keys: Sequence[Any]) -> list[Values]:
        """Return the rows with these keys, as they stand: key, status, worker and start."""

    @abstractmethod
    def _beats(self) -> Beats[Any]: ...

    def _at_work(self) -> W:
        if self._opened is None:
            raise NotRunning(f"table {self.table.name!r} is closed: call open() first")
        return self._opened

    async def counts(self) -> list[StatusCount]:
        """Count the rows of each status of the mapping, up to a limit. Needs no `open`, like the next two methods."""
        async with self._reading() as reader:
            return [await reader.count(word) for word in self.table.words]

    async def workers(self) -> list[TableWorker]:
        """Return the workers that hold rows, by label. An idle worker leaves no trace in the table."""
        async with self._reading() as reader:
            return await overview.workers(reader, self.table)

    async def row_state(self, key: str) -> RowState | None:
        """Return the row with this key, which is given as text; None: there is no such row."""
        async with self._reading() as reader:
            return await overview.row_state(reader, self.table, key)

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract. The worker's label is what it writes into its rows."""
        del lease_s
        self._workers[card.incarnation] = card.label

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        await self._recover(self._workers.pop(incarnation, ""))

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract."""
        most = min(most, LEASE_LIMIT, sum(rooms.values()))
        if most <= 0:
            return Leased([])
        found = await self._look(self._workers[incarnation], most)
        return Leased([self._claims.take(*one) for one in found.claimed], found.next_due_s, found.missed)

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        del incarnation  # each claim has its worker
        claims = self._claims.held(one.id for one in settlements)
        lost = await self._settle(batch_of(self.table, settlements, claims)) if claims else set()
        self._claims.release(claims.keys() - lost)
        return lost | {one.id for one in settlements if one.id not in claims}

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        del incarnation
        claims = self._claims.held(one.id for one in settlements)
        rows = await self._states([claim.key for claim in claims.values()]) if claims else []
        states = {key: state for key, *state in rows}
        before = set()
        for one in settlements:
            claim = claims.get(one.id)
            if claim is not None and (state := states.get(claim.key)) is not None:
                status, *fence = state
                is_ours = fence == [claim.worker, claim.started_at]
                if is_as_left(self.table, written(self.table, one), status, is_ours):
                    before.add(one.id)
        self._claims.release(before)
        return before

    async def note_loss(self, task_id: int, note: str) -> None:
        """See the contract. The table has no place for it: the log names the row."""
        logger.warning(
            "table %s: row %s was not ours any more (its status was changed, or it was given to another): %s",
            self.table.name,
            self._claims.lost(task_id),
            msgspec.json.decode(note).get("why"),
        )

    async def prune(self, older_than_s: float) -> int:
        """See the contract. Finished rows are the user's own, and stay."""
        del older_than_s
        return 0

    async def back_off(self, delay_s: float) -> None:
        """See the contract."""
        await asyncio.sleep(delay_s)

    def heartbeat_connection(self) -> TableHeartbeatConnection:
        """See the contract."""
        return TableHeartbeatConnection(self.table, self._claims, self._outages, self._beats())

    def _warn_if_foreign(self, seen: Collection[str], in_use: Finding) -> None:
        """Say at the start that no row has a status of the mapping. `seen`: the statuses of a sample."""
        if is_foreign(self.table, seen) and not in_use.is_fit:
            logger.warning("table %s: %s", self.table.name, in_use.detail)
