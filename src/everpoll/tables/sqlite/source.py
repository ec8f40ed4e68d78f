"""SqliteTable: the user's own table in an SQLite file, for the processes of one machine.

    lease, settle ──▶ writer: one thread, group commit, hears other programs ──────┐
    heartbeat ──────▶ a connection of its own ─────────────────────────────────────┴──▶ the file

Promises: what `TableSource` does. Rows that any program inserts wake the worker within 80 ms; a row of ours
that another program changes has its handler stopped as soon. The file may be the app's own, everpoll's tables then live
beside the user's. How instants are written: see `instants`. What guards mean here: see `claiming`.
The file is switched to WAL mode if it is not in it, which stays so and is logged: without it, every reader would stop
the workers, and they every reader.
Never: creates a file or a table; blocks the event loop on the file.
"""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from everpoll.drivers.sqlite.address import read_address
from everpoll.drivers.sqlite.connection import PATIENCE_S, Connection
from everpoll.drivers.sqlite.file_listeners import FileListeners
from everpoll.drivers.sqlite.journal import is_wal, use_wal
from everpoll.drivers.sqlite.lane import Op
from everpoll.drivers.sqlite.notifying_file import NotifyingFile
from everpoll.drivers.sqlite.own_connection import brief_connection
from everpoll.drivers.sqlite.writer import Writer
from everpoll.drivers.wake import OnWake, Wake
from everpoll.errors import BadInput, NotRunning, StoreUnavailable
from everpoll.policy import shown
from everpoll.stores.contract import Settlement, WorkerCard
from everpoll.tables.claiming import Found, claim_rows, run_now
from everpoll.tables.claims import Claim
from everpoll.tables.contract import Finding
from everpoll.tables.ddl import Ddl
from everpoll.tables.mapping import Table
from everpoll.tables.overview import Reader
from everpoll.tables.settling import Settled
from everpoll.tables.source import TableSource
from everpoll.tables.sqlite import claiming, findings, settling
from everpoll.tables.sqlite.ddl import ddl_of
from everpoll.tables.sqlite.heartbeat_connection import SqliteBeats
from everpoll.tables.sqlite.instants import Starts
from everpoll.tables.sqlite.shape import FileShape, read_shape
from everpoll.tables.sqlite.statements import Sql, Statements
from everpoll.tables.statements import Values

T = TypeVar("T")

logger = logging.getLogger("everpoll.tables")


class TableListeners(FileListeners):
    """Wakes the pollers of one table, except for commits that changed nothing for them.

    The worker hears every commit to the file, those of other programs and of everpoll's own store included. Without
    this rule each commit would cause a look: 20 a second beside a busy program.
    """

    is_muted = False
    """Set by the waking thread just before a wake; it holds for that wake only."""

    def wake(self, wake: Wake) -> None:
        """Wake the pollers, unless they are muted. A wake for a cancel always gets through."""
        is_muted, self.is_muted = self.is_muted, False
        if wake.cancel or not is_muted:
            super().wake(wake)


class SqliteTable(TableSource[FileShape, Statements]):
    """One table of the user's own."""

    def __init__(self, url: str, table: Table, *, patience_s: float = PATIENCE_S) -> None:
        if len(table.parts) > 1 and table.parts[0].lower() != "main":
            raise BadInput(
                f"table {shown(table.name)}: an SQLite file has no schemas; write {table.parts[-1]!r}, and the address "
                "of the file that it is in as url=…"
            )
        super().__init__(table)
        self._file_listeners = TableListeners()
        self._file = NotifyingFile(self._file_listeners)
        self._address = read_address(url)
        self._place = f" in {self._address.path}"
        self._patience_s = patience_s
        self._settling: set[int] = set()
        self._starts = Starts()
        self._has_found = False
        self._next_due: object = None
        self._doubts: list[list[Claim]] = []
        """For each look whose outcome is unknown, what it may have claimed, without keys."""

    async def open(self) -> None:
        """See the contract. Switches the file to WAL mode."""
        statements = Statements(self.table, await self._fit())
        await asyncio.to_thread(self._prepare, statements)
        if self._file.writer is not None:
            return
        self._opened = statements
        name = f"everpoll-table {self._address.path.name} {self.table.name}"
        self._file.start(Writer(name, self._address, self._patience_s, self._check, self._file_listeners, self._taken))

    async def close(self) -> None:
        """See the contract."""
        writer, self._file.writer = self._file.writer, None
        self._file.remove_listeners()
        if writer is not None:
            await writer.stop()

    async def _examined(self) -> tuple[FileShape | None, list[Finding]]:
        return await asyncio.to_thread(self._look_at)

    def _look_at(self) -> tuple[FileShape | None, list[Finding]]:
        return findings.examined(self._address, self.table, self._patience_s)

    def ddl(self) -> list[str]:
        """See the contract. Reads the file: SQLite cannot add a column only where it is missing."""
        self._shape, self._found = self._look_at()
        return super().ddl()

    def _ddl(self, shape: FileShape | None) -> Ddl:
        return ddl_of(self.table, shape)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Reader[Sql]]:
        def read(sql: Sql) -> list[Values]:
            with brief_connection(self._address, self._patience_s) as con:
                return settling.read_rows(con, sql)

        statements = Statements(self.table, await self._fit())
        yield Reader(statements, lambda sql: asyncio.to_thread(read, sql), datetime.now(UTC))

    def _prepare(self, statements: Statements) -> None:
        """Warn of what could be better, and switch the file to WAL mode. Blocks."""
        for one in self._found:
            if not one.is_fit and one.what.startswith(("index", "status words")):
                better = f"; better: {one.ddl}" if one.ddl else ""
                logger.warning("table %s: %s: %s%s", self.table.name, one.what, one.detail, better)
        in_use = next(one for one in self._found if one.what == "words in use")
        with brief_connection(self._address, self._patience_s) as con:
            self._warn_if_foreign(findings.seen_words(con, statements), in_use)
            if not is_wal(con):
                use_wal(con, self._patience_s)
                logger.warning("%s was switched to WAL mode, and stays in it", self._address.path)

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract. The table has no place for workers; but the file must be writable."""
        await self._write(Op(lambda _con: None))
        self._outages.heard()
        await super().sign_on(card, lease_s)

    async def _recover(self, worker: str) -> None:
        del worker  # each claim has its own
        statements, doubts = self._at_work(), list(self._doubts)
        if any(doubts):
            await self._write(Op(lambda con: claiming.recover(con, statements, itertools.chain(*doubts)), wakes=True))
        self._doubts.clear()

    async def _look(self, worker: str, most: int) -> Found:
        """Claim at most so many rows. If the caller is canceled meanwhile, the next look hands them back."""
        statements, doubts = self._at_work(), list(self._doubts)
        begun: list[Claim] = []
        tried: Sequence[Values] = ()

        def claim(con: Connection) -> Found:
            nonlocal tried
            claiming.recover(con, statements, itertools.chain(*doubts))
            database = claiming.SqliteClaiming(con, statements, self._starts, begun)
            try:
                return run_now(claim_rows(database, self._refusals, worker, most, []))
            finally:
                tried = database.tried

        op = Op(
            claim,
            # After a look that found rows, the next one most likely finds some, too: the peek would cost more.
            peek=None if self._has_found or doubts else lambda con: claiming.peek(con, statements),
            unwanted=lambda _: None,  # it is a doubt
        )
        self._doubts.append(begun)
        try:
            found = await self._write(op)
        except Exception as error:
            is_rolled_back = isinstance(error, sqlite3.IntegrityError)
            if is_rolled_back or not begun:
                self._doubts = [one for one in self._doubts if one is not begun]
            if not is_rolled_back or not tried:
                raise
            if len(tried) > 1:
                return await self._look(worker, 1)  # a trigger has ended the whole transaction: find out for which row
            self._refusals.add(tried[0][0], error)
            return Found([], 0.0)
        self._doubts = [one for one in self._doubts if one is not begun and not any(one is old for old in doubts)]
        self._has_found = bool(found.claimed)
        return found

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        numbers = {one.id for one in settlements}
        # From here on, a row without our fence may be one that this worker has settled: it is not lost.
        self._settling |= numbers
        try:
            return await super().settle(incarnation, settlements)
        finally:
            self._settling -= numbers

    async def _settle(self, batch: Sequence[Settled]) -> set[int]:
        statements, wakes = self._at_work(), any(not one.write.is_end for one in batch)
        return await self._write(Op(lambda con: settling.settle(con, statements, batch), wakes=wakes))

    async def _states(self, keys: Sequence[Any]) -> list[Values]:
        queries = list(self._at_work().states(keys))
        return await self._write(Op(lambda con: [row for sql in queries for row in settling.answered(con, sql)]))

    @property
    def has_push(self) -> bool:
        """See the contract."""
        return True

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        self._file.listen(on_wake)

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        self._file.unlisten(on_wake)

    @property
    def yield_to_thread(self) -> Callable[[], None]:
        """See the contract."""
        return self._file.yield_to_thread

    def _beats(self) -> SqliteBeats:
        return SqliteBeats(self._at_work(), self._address, self._patience_s)

    def _check(self, con: Connection) -> None:
        """Refuse a reopened file that lacks the table: the path may lead to another file now."""
        shape = read_shape(con, self.table)
        if shape is None or any(shape.column(name) is None for name in self.table.used.values()):
            raise StoreUnavailable(
                f"{con.path} has no table {self.table.name!r} with the columns it had: put the file back, or restart"
            )

    def _taken(self, con: Connection) -> frozenset[int]:
        """Return the claims whose rows another program has changed. The writer's thread calls it after commits of
        others.
        """
        claims = self._claims.all()
        for number in tuple(self._settling):
            claims.pop(number, None)
        self._file_listeners.is_muted = not self._has_news(con)
        return settling.lost_claims(con, self._at_work(), claims)

    def _has_news(self, con: Connection) -> bool:
        """Return True if a look can find more than the last one: a row is ready, or another due time is next."""
        ready, next_due = claiming.peeked(con, self._at_work())
        is_changed = next_due is not None and next_due != self._next_due
        self._next_due = next_due
        return bool(ready) or is_changed

    def _write(self, op: Op[T]) -> "asyncio.Future[T]":
        if self._file.writer is None:
            raise NotRunning(f"table {self.table.name!r} is closed: call open() first")
        return self._file.writer.submit(op)
