"""PostgresTable: the user's own table in Postgres as a source of work for the engine.

    poller ────▶ claiming ──┐
    settler ───▶ settling ──┼──▶ the user's table: its columns are all the bookkeeping there is
    heartbeat ─▶ pulse ─────┤      each arrow is a lane; all but the heartbeat's share a few connections
    listener ◀── trigger ───┘

Promises: what `Source` does, in READ COMMITTED, by the database's clock, with nothing in any session that a transaction
pooler would lose. Nothing is written into a row that is not ours by its fence; a row whose status the user changes is
the user's. Rows are taken however they got there.
"""

import logging
import os
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from everpoll.drivers.postgres.address import read_address
from everpoll.drivers.postgres.connections import Connections
from everpoll.drivers.postgres.dial import Connection, Dial
from everpoll.drivers.postgres.lane import Lane
from everpoll.drivers.wake import OnWake
from everpoll.errors import SchemaOutdated, TableUnfit
from everpoll.stores.contract import Again, Leased, Settlement, WorkerCard
from everpoll.tables.claims import Claims
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table
from everpoll.tables.outages import Outages
from everpoll.tables.overview import RowState, StatusCount, TableWorker
from everpoll.tables.postgres import ddl, findings, reading, rights, shape
from everpoll.tables.postgres.claiming import Claiming
from everpoll.tables.postgres.doubts import Doubts
from everpoll.tables.postgres.fitness import Flaw, described, flaws
from everpoll.tables.postgres.pulse import TablePulse
from everpoll.tables.postgres.push import Push
from everpoll.tables.postgres.settling import Settling
from everpoll.tables.postgres.shape import Relation
from everpoll.tables.postgres.statements import Phrases
from everpoll.tables.unmapped_statuses import is_foreign

logger = logging.getLogger("everpoll.tables")

T = TypeVar("T")

LANES = 3
IS_READ_COMMITTED = "select current_setting('default_transaction_isolation') = 'read committed'"


class PostgresTable:
    """One table of one database, for one worker."""

    beats_in_loop = False
    hand_over = None

    def __init__(self, url: str, table: Table) -> None:
        schema = table.parts[0] if len(table.parts) > 1 else None
        dial = Dial(replace(read_address(url), schema=schema))
        self._table = table
        self._dial = dial
        self._connections = connections = Connections(dial, dial.address.connections - 1, self._ask_for_room)
        first = 1 if connections.size > LANES else 0
        self._doubts = Doubts()
        self._settlements = Lane(connections, first, is_busy=True)
        self._taking = Lane(connections, first + 1, is_busy=True, on_connect=self._doubts.connected)
        self._catalog_lane = Lane(connections, first + 2, is_slow=True)
        self._heartbeats = connections.heartbeats()
        self._claims = Claims(table.name)
        self._outages = Outages(table)
        self._relation: Relation | None = None
        self._fit: set[str] = set()
        """What the last inspection found to be as it should."""
        self._opened: Opened | None = None
        self._worker = ""

    @property
    def has_push(self) -> bool:
        """See the contract."""
        return self._opened is not None and self._opened.push.has_push

    @has_push.setter
    def has_push(self, _: bool) -> None:
        raise AttributeError("has_push is found out by listening")

    async def open(self) -> None:
        """See the contract."""
        phrases = await self._phrases()
        relation = phrases.relation
        await self._catalog_lane.call(lambda connection: rights.check(connection, self._table, relation))
        if is_foreign(self._table, await findings.seen_words(self._catalog_lane, phrases)):
            detail = (await findings.words(self._catalog_lane, phrases)).detail
            logger.warning("table %s: %s", self._table.name, detail)
        self._opened = Opened(
            phrases,
            Claiming(self._taking, phrases, self._claims, self._doubts),
            Settling(self._settlements, phrases, self._claims),
            Push(self._connections, self._catalog_lane, relation),
        )

    async def _phrases(self) -> Phrases:
        """The table with its columns; `TableUnfit` where it is not as it is mapped."""
        relation, found = await self._catalog_lane.call(self._looked_at)
        self._relation = relation
        if relation is None:
            raise TableUnfit(
                f"there is no table {self._table.name!r} in this database, or not in its search_path: write its name "
                "with its schema, or make it; `everpoll tables ddl` prints the statement",
                self.ddl(),
            )
        if found:
            raise TableUnfit(described(self._table, relation, found), [one.ddl for one in found if one.ddl is not None])
        return Phrases(self._table, relation)

    async def counts(self) -> list[StatusCount]:
        """See the contract."""
        return await reading.counts(self._catalog_lane, await self._phrases())

    async def workers(self) -> list[TableWorker]:
        """See the contract."""
        return await reading.workers(self._catalog_lane, await self._phrases())

    async def row_state(self, key: str) -> RowState | None:
        """See the contract."""
        return await reading.row_state(self._catalog_lane, await self._phrases(), key)

    async def _ask_for_room(self) -> None:
        if self._opened is not None:
            await self._opened.push.ask_for_room()

    async def _looked_at(self, connection: Connection) -> tuple[Relation | None, list[Flaw]]:
        if not await connection.fetchval(IS_READ_COMMITTED):
            self._dial.insist_on_read_committed()
        relation = await shape.read(connection, self._table)
        if relation is None:
            return None, []
        refused: dict[str, str] = {}
        if self._table.status in relation.columns:
            refused = await shape.refused_words(connection, self._table, relation)
        return relation, flaws(self._table, relation, refused)

    async def close(self) -> None:
        """See the contract."""
        if self._opened is not None:
            await self._opened.push.close()
        await self._connections.close()

    async def inspect(self) -> list[Finding]:
        """See the contract."""
        relation, found = await self._catalog_lane.call(self._looked_at)
        self._relation = relation
        if relation is None:
            detail = "is not in this database, or not in its search_path"
            return [
                Finding(
                    what=f"table {self._table.name}", is_fit=False, detail=detail, ddl=ddl.create_table(self._table)
                )
            ]
        looked_at = findings.columns(self._table, relation, found)
        if not found:
            looked_at.append(await findings.words(self._catalog_lane, Phrases(self._table, relation)))
            looked_at.append(await findings.key(self._catalog_lane, self._table, relation))
            looked_at.append(await findings.index(self._catalog_lane, Phrases(self._table, relation)))
            looked_at += await findings.due_index(self._catalog_lane, self._table, relation)
        if self._table.status in relation.columns:
            looked_at.append(await findings.push(self._catalog_lane, self._table, relation))
        self._fit = {one.what for one in looked_at if one.is_fit}
        return looked_at

    def ddl(self) -> list[str]:
        """See the contract. Once the table was inspected, only what it lacks."""
        table, relation = self._table, self._relation
        if relation is None:
            statements = [ddl.create_table(table)]
        else:
            lacking = [(use, name) for use, name in table.used.items() if name not in relation.columns]
            statements = [ddl.add_column(table, relation, use, name) for use, name in lacking]
        if "index" not in self._fit:
            statements.append(ddl.create_index(table, relation))
        if table.due_at is not None and "index of due times" not in self._fit:
            statements.append(ddl.create_due_index(table, relation))
        return [*statements, *([] if "push" in self._fit else ddl.create_trigger(table, relation))]

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """The worker's label is what it writes into its rows."""
        opened = self._is_open()
        length = opened.phrases.column_of("worker").length
        if length is not None and len(card.label) > length:
            raise TableUnfit(
                f"table {self._table.name!r}: its column {self._table.worker!r} holds {length} characters, and this "
                f"worker is called {card.label!r}: set WORKER_ID to a shorter name, or widen the column"
            )
        self._worker = opened.claiming.worker = card.label
        self._connections.await_heartbeat()
        self._doubts.is_id_unique = card.label != os.environ.get("WORKER_ID")

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        if self._doubts.are_left:
            try:
                await self._as_unfit(self._is_open().claiming.recover())
            except TableUnfit as error:
                logger.warning("%s; what this worker may have claimed without knowing stays as it is", error)

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract."""
        return await self._as_unfit(self._is_open().claiming.lease(min(most, *rooms.values()) if rooms else most))

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        if not settlements:
            return set()
        lost = await self._as_unfit(self._is_open().settling.settle(settlements))
        if any(isinstance(one, Again) for one in settlements):
            # There is something to do now, or the next due time has changed.
            self._is_open().push.wake()
        return lost

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        return await self._as_unfit(self._is_open().settling.settled_before(settlements))

    async def note_loss(self, task_id: int, note: str) -> None:
        """The table has no place for it: the log tells which row it was."""
        key = self._is_open().settling.lost_keys.pop(task_id, None)
        logger.warning(
            "table %s: row %s was not ours any more (its status was changed, or it was given to another): %s",
            self._table.name,
            key,
            msgspec.json.decode(note).get("why"),
        )

    async def prune(self, older_than_s: float) -> int:
        """Finished rows are the user's own, and stay."""
        return 0

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        await self._is_open().push.add(on_wake)

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        await self._is_open().push.remove(on_wake)

    async def back_off(self, delay_s: float) -> None:
        """See the contract."""
        await self._dial.reach.wait(delay_s)

    def pulse(self) -> TablePulse:
        """See the contract."""
        return TablePulse(self._heartbeats, self._is_open().phrases, self._claims, self._outages, self._worker)

    def _is_open(self) -> "Opened":
        assert self._opened is not None, "a table is opened before it is used"
        return self._opened

    async def _as_unfit(self, asked: Awaitable[T]) -> T:
        """What is missing in the user's table is not for `everpoll migrate` to bring."""
        try:
            return await asked
        except SchemaOutdated as error:
            what = str(error).split(";", 1)[0]
            raise TableUnfit(
                f"table {self._table.name!r} has changed under way: {what}; `everpoll tables check` tells what it lacks"
            ) from error


class Opened:
    """What there is once the columns are known."""

    def __init__(self, phrases: Phrases, claiming: Claiming, settling: Settling, push: Push) -> None:
        self.phrases = phrases
        self.claiming = claiming
        self.settling = settling
        self.push = push
