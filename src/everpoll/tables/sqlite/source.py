"""SqliteTable: the user's own table in an SQLite file, for the processes of one machine.

    lease, settle ──▶ writer: one thread, group commit, hears other programs ──────┐
    heartbeat ──────▶ pulse: a connection of its own ───────────────────────────────┴──▶ the file

Promises: what `tables/contract.py` does. Rows that any program inserts wake the worker within 80 ms; a row of ours
that another program changes has its handler stopped as soon. The file may be the app's own, everpoll's tables then live
beside the user's. How instants are written: see `instants`. What guards mean here: see `claiming`.
The file is switched to WAL mode if it is not in it, which stays so and is logged: without it, every reader would stop
the workers, and they every reader.
Never: creates a file or a table; blocks the event loop on the file.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from everpoll.drivers.sqlite.address import read_address
from everpoll.drivers.sqlite.bell import Bell, Listener
from everpoll.drivers.sqlite.connection import PATIENCE_S, Connection, connect
from everpoll.drivers.sqlite.faults import explained
from everpoll.drivers.sqlite.journal import is_wal, use_wal
from everpoll.drivers.sqlite.lane import Op
from everpoll.drivers.sqlite.writer import Writer
from everpoll.drivers.wake import OnWake, Wake
from everpoll.errors import BadInput, NotRunning, StoreUnavailable, TableUnfit
from everpoll.policy import shown
from everpoll.stores.contract import LEASE_LIMIT, Again, Leased, Settlement, WorkerCard
from everpoll.tables.claims import Claims
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table
from everpoll.tables.outages import Outages
from everpoll.tables.outcome import written
from everpoll.tables.overview import RowState, StatusCount, TableWorker
from everpoll.tables.refusals import Refusals
from everpoll.tables.sqlite import claiming, findings, reading, settling
from everpoll.tables.sqlite.instants import Starts
from everpoll.tables.sqlite.pulse import SqlitePulse
from everpoll.tables.sqlite.settling import Settled
from everpoll.tables.sqlite.shape import Shape, read_shape
from everpoll.tables.sqlite.statements import Statements
from everpoll.tables.sqlite.words import seen_words
from everpoll.tables.unmapped_statuses import is_foreign

T = TypeVar("T")

logger = logging.getLogger("everpoll.tables")


class TableBell(Bell):
    """Wakes the pollers of one table, and not for a commit that changed nothing for them.

    Every commit to the file is heard, those of other programs and of everpoll's own store included. Without this
    rule each of them causes a look: 20 a second beside a busy program.
    """

    is_muted = False
    """Set just before a ring, by the thread that rings; it holds for that ring."""

    def ring(self, wake: Wake) -> None:
        """Wake them, unless it is muted; a cancel always gets through."""
        is_muted, self.is_muted = self.is_muted, False
        if wake.cancel or not is_muted:
            super().ring(wake)


class SqliteTable:
    """One table of the user's own."""

    has_push = True
    beats_in_loop = False

    def __init__(self, url: str, table: Table, *, patience_s: float = PATIENCE_S) -> None:
        if len(table.parts) > 1 and table.parts[0].lower() != "main":
            raise BadInput(
                f"table {shown(table.name)}: an SQLite file has no schemas; write {table.parts[-1]!r}, and the address "
                "of the file that it is in as url=…"
            )
        self.table = table
        self._address = read_address(url)
        self._patience_s = patience_s
        self._bell = TableBell()
        self._listeners: list[Listener] = []
        self._claims = Claims(table.name)
        self._settling: set[int] = set()
        self._labels: dict[int, str] = {}
        self._starts = Starts()
        self._outages = Outages(table)
        self._refusals = Refusals(table.name, "claimed")
        self._statements: Statements | None = None
        self._writer: Writer | None = None
        self._found = False
        self._next_due: object = None
        self._doubts: list[claiming.Look] = []

    async def open(self) -> None:
        """See the contract."""
        shape = await asyncio.to_thread(self._prepare)
        if self._writer is not None:
            return
        self._statements = Statements(self.table, shape)
        name = f"everpoll-table {self._address.path.name} {self.table.name}"
        self._writer = Writer(name, self._address, self._patience_s, self._check, self._bell, self._taken)
        self._writer.start()
        self._writer.listen(bool(self._listeners))

    async def close(self) -> None:
        """See the contract."""
        writer, self._writer = self._writer, None
        for listener in self._listeners:
            self._bell.remove(listener)
        self._listeners.clear()
        if writer is not None:
            await writer.stop()

    async def inspect(self) -> list[Finding]:
        """See the contract."""
        return (await asyncio.to_thread(self._examined))[1]

    def ddl(self) -> list[str]:
        """See the contract. Reads the file: SQLite cannot add a column only where it is missing."""
        return findings.ddl(self.table, *self._examined())

    async def counts(self) -> list[StatusCount]:
        """See the contract."""
        return await asyncio.to_thread(self._looked_up, lambda con: reading.counts(con, self.table))

    async def workers(self) -> list[TableWorker]:
        """See the contract."""
        return await asyncio.to_thread(self._looked_up, lambda con: reading.workers(con, self.table))

    async def row_state(self, key: str) -> RowState | None:
        """See the contract."""
        return await asyncio.to_thread(self._looked_up, lambda con: reading.row_state(con, self.table, key))

    def _looked_up(self, use: Callable[[Connection], T]) -> T:
        """Read the table on a connection of its own. Blocks."""
        problem = findings.unfit(self.table, self._address.path, *self._examined())
        if problem is not None:
            raise TableUnfit(problem)
        try:
            con = connect(self._address, patience_s=self._patience_s)
            try:
                return use(con)
            finally:
                con.close()
        except sqlite3.Error as error:
            raise explained(error, self._address.path, opening=True) from error

    def _examined(self) -> tuple[Shape | None, list[Finding]]:
        return findings.examined(self._address, self.table, self._patience_s)

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract. The table has no place for workers; but the file must be writable."""
        del lease_s
        await self._write(Op(lambda _con: None))
        self._outages.heard()
        self._labels[card.incarnation] = card.label

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        statements, doubts = self._opened(), list(self._doubts)
        if any(one.begun for one in doubts):
            await self._write(Op(lambda con: claiming.recover(con, statements, _begun(doubts)), wakes=True))
        self._doubts.clear()
        self._labels.pop(incarnation, None)

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract. A caller that is canceled meanwhile claims nothing: its rows are handed back."""
        statements, doubts = self._opened(), list(self._doubts)
        look = claiming.Look(self._labels[incarnation], max(0, min(most, LEASE_LIMIT, sum(rooms.values()))))

        def claim(con: Connection) -> claiming.Found:
            claiming.recover(con, statements, _begun(doubts))
            return claiming.claim(con, statements, self._starts, look, self._refusals)

        op = Op(
            claim,
            # Where the look before brought something, this one will, too: why ask first?
            peek=None if self._found or doubts else lambda con: claiming.peek(con, statements),
            unwanted=self._hand_back,
        )
        self._doubts.append(look)
        try:
            found = await self._write(op)
        except Exception:
            if not look.begun:
                self._doubts.remove(look)
            raise
        self._doubts = [one for one in self._doubts if one is not look and one not in doubts]
        self._found = bool(found.picked)
        return Leased([self._claims.take(*one) for one in found.picked], found.next_due_s)

    def _hand_back(self, found: claiming.Found) -> None:
        if found.picked and self._writer is not None:
            statements = self._opened()
            batch = settling.handed_back([one.claim for one in found.picked], self.table.queued)
            giving = self._writer.submit(Op(lambda con: settling.settle(con, statements, batch), wakes=True))
            giving.add_done_callback(_note_failure)

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        del incarnation  # each claim has its worker
        statements, batch = self._opened(), self._batch(settlements)
        numbers = {one.number for one in batch}
        if not numbers:
            return {one.id for one in settlements}
        wakes = any(isinstance(one, Again) for one in settlements)
        # From here on a row that is not ours any more was settled by this worker: it is not lost.
        self._settling |= numbers
        try:
            lost = await self._write(Op(lambda con: settling.settle(con, statements, batch), wakes=wakes))
            self._claims.let_go(numbers - lost)
        finally:
            self._settling -= numbers
        return lost | {one.id for one in settlements if one.id not in numbers}

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        del incarnation
        statements, batch = self._opened(), self._batch(settlements)
        before = await self._write(Op(lambda con: settling.settled_before(con, statements, batch)))
        self._claims.let_go(before)
        return before

    def _batch(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Of two for the same claim the first counts."""
        held, first = self._claims.of(settlements), {one.id: one for one in reversed(settlements)}
        return [Settled(number, claim, written(self.table, first[number])) for number, claim in held.items()]

    async def note_loss(self, task_id: int, note: str) -> None:
        """See the contract. The table has no place for it: the log has."""
        del note
        self._claims.let_go([task_id])

    async def prune(self, older_than_s: float) -> int:
        """See the contract. What has ended is the user's own, and stays."""
        del older_than_s
        return 0

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        listener = Listener(asyncio.get_running_loop(), on_wake)
        self._listeners.append(listener)
        self._bell.add(listener)
        if self._writer is not None:
            self._writer.listen(True)

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        for listener in [one for one in self._listeners if one.on_wake == on_wake]:
            self._listeners.remove(listener)
            self._bell.remove(listener)
        if self._writer is not None:
            self._writer.listen(bool(self._listeners))

    async def back_off(self, delay_s: float) -> None:
        """See the contract. A file is tried by each part for itself: that costs next to nothing."""
        await asyncio.sleep(delay_s)

    def pulse(self) -> SqlitePulse:
        """See the contract."""
        return SqlitePulse(self._address, self._patience_s, self._opened(), self._claims, self._outages)

    def _prepare(self) -> Shape:
        """The file and the table are fit, or `TableUnfit` is raised. Blocks."""
        shape, found = self._examined()
        problem = findings.unfit(self.table, self._address.path, shape, found)
        if problem is not None or shape is None:
            raise TableUnfit(problem or "", findings.ddl(self.table, shape, found))
        for one in found:
            if not one.is_fit and one.what.startswith(("index", "status words")):
                better = f"; better: {one.ddl}" if one.ddl else ""
                logger.warning("table %s: %s: %s%s", self.table.name, one.what, one.detail, better)
        try:
            con = connect(self._address, patience_s=self._patience_s)
            try:
                if is_foreign(self.table, seen_words(con, self.table)):
                    detail = next(one.detail for one in found if one.what == "words in use")
                    logger.warning("table %s: %s", self.table.name, detail)
                if not is_wal(con):
                    use_wal(con, self._patience_s)
                    logger.warning("%s was switched to WAL mode, and stays in it", self._address.path)
            finally:
                con.close()
        except sqlite3.Error as error:
            raise explained(error, self._address.path, opening=True) from error
        return shape

    def _check(self, con: Connection) -> None:
        """A connection that was opened anew may find another file in the old place."""
        shape = read_shape(con, self.table.parts[-1])
        if shape is None or any(shape.column(name) is None for name in self.table.used.values()):
            raise StoreUnavailable(
                f"{con.path} has no table {self.table.name!r} with the columns it had: put the file back, or restart"
            )

    def _taken(self, con: Connection) -> frozenset[int]:
        """The claims whose rows another program has changed; in the writer's thread, when others have committed."""
        claims = self._claims.all()
        for number in tuple(self._settling):
            claims.pop(number, None)
        self._bell.is_muted = not self._has_news(con)
        return settling.lost_claims(con, self._opened(), claims)

    def _has_news(self, con: Connection) -> bool:
        """Whether a look can find more than the last one: a row is ready, or another due time is next."""
        ready, next_due = claiming.peeked(con, self._opened())
        is_changed = next_due is not None and next_due != self._next_due
        self._next_due = next_due
        return bool(ready) or is_changed

    def _opened(self) -> Statements:
        if self._statements is None:
            raise NotRunning(f"table {self.table.name!r} is closed: call open() first")
        return self._statements

    def hand_over(self) -> None:
        """See the contract."""
        if self._writer is not None:
            self._writer.hand_over()

    def _write(self, op: Op[T]) -> "asyncio.Future[T]":
        if self._writer is None:
            raise NotRunning(f"table {self.table.name!r} is closed: call open() first")
        return self._writer.submit(op)


def _begun(doubts: Iterable[claiming.Look]) -> list[claiming.Start]:
    return [start for look in doubts for start in look.begun]


def _note_failure(giving: "asyncio.Future[set[int]]") -> None:
    if not giving.cancelled() and (error := giving.exception()) is not None:
        logger.warning("what was claimed for a canceled caller could not be handed back: %s", error)
