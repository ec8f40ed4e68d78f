"""PostgresTable: the user's own table in Postgres as a source of work for the engine.

    claims, settlements ──▶ lanes: all but the heartbeat's share a few connections ──┐
    heartbeat ────────────▶ a connection of its own ─────────────────────────────────┴──▶ the user's table
    listener ◀───────────── its trigger

Promises: what `TableSource` does, in READ COMMITTED, by the database's clock, with nothing in any session that a
transaction pooler would lose.
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import asyncpg

from everpoll.drivers.postgres.address import read_address
from everpoll.drivers.postgres.connections import Connections
from everpoll.drivers.postgres.connector import Connection, Connector
from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import BadInput, EverpollError, SchemaOutdated, StoreUnavailable, TableUnfit
from everpoll.stores.contract import WorkerCard
from everpoll.tables.claiming import Found, claim_rows
from everpoll.tables.contract import Finding
from everpoll.tables.ddl import Ddl
from everpoll.tables.findings import absent, columns, no_table
from everpoll.tables.mapping import Table
from everpoll.tables.overview import Reader
from everpoll.tables.postgres import findings, shape
from everpoll.tables.postgres.claiming import REFUSED, Doubts, PostgresClaiming
from everpoll.tables.postgres.ddl import ddl_of
from everpoll.tables.postgres.heartbeat_connection import PostgresBeats
from everpoll.tables.postgres.push import Push
from everpoll.tables.postgres.settling import settle
from everpoll.tables.postgres.shape import Relation
from everpoll.tables.postgres.statements import Sql, Statements
from everpoll.tables.settling import Settled
from everpoll.tables.source import TableSource
from everpoll.tables.statements import Values

logger = logging.getLogger("everpoll.tables")

T = TypeVar("T")

LANES = 3
IS_READ_COMMITTED = "select current_setting('default_transaction_isolation') = 'read committed'"


class PostgresTable(TableSource[Relation, PostgresClaiming]):
    """One table of one database, for one worker."""

    def __init__(self, url: str, table: Table) -> None:
        super().__init__(table)
        schema = table.parts[0] if len(table.parts) > 1 else None
        self._connector = connector = Connector(replace(read_address(url), schema=schema))
        self._connections = connections = Connections(connector, connector.address.connections - 1, self._ask_for_room)
        first = 1 if connections.size > LANES else 0
        self._doubts = Doubts()
        self._settlements = Lane(connections, first, is_busy=True)
        self._taking = Lane(connections, first + 1, is_busy=True, on_connect=self._doubts.connected)
        self._catalog_lane = Lane(connections, first + 2, is_slow=True)
        self._heartbeats = connections.heartbeats()
        self._push: Push | None = None

    async def open(self) -> None:
        """See the contract."""
        relation, lane = await self._fit(), self._catalog_lane
        statements = Statements(self.table, relation)
        await lane.call(lambda connection: findings.check_rights(connection, self.table, relation))
        self._warn_if_foreign(*await findings.words_in_use(lane, statements))
        key = await findings.key(lane, self.table, relation)
        if not key.is_fit:
            logger.warning("table %s: its key, %s, %s", self.table.name, self.table.key, key.detail)
        self._push = Push(self._connections, lane, relation)
        self._opened = PostgresClaiming(self._taking, statements)

    async def _examined(self) -> tuple[Relation | None, list[Finding]]:
        async def look(connection: Connection) -> Relation | None:
            if not await connection.fetchval(IS_READ_COMMITTED):
                self._connector.require_read_committed()
            return await shape.read(connection, self.table)

        relation = await self._catalog_lane.call(look)
        ddl = ddl_of(self.table, relation)
        if relation is None:
            where = "in this database, or not in its search_path: write its name with its schema"
            return None, [absent(f"there is no such table {where}", ddl)]
        if relation.kind != "table":
            return relation, [no_table(relation.kind)]
        return relation, columns(self.table, relation, ddl.add_column)

    async def _further(self, shape: Relation) -> list[Finding]:
        lane, table, found = self._catalog_lane, self.table, list[Finding]()
        if not any(one.keeps_from_use for one in self._found):
            statements = Statements(table, shape)
            found.append((await findings.words_in_use(lane, statements))[1])
            found.append(await findings.key(lane, table, shape))
            found.append(await findings.index(lane, statements))
            if table.due_at is not None:
                found.append(await findings.due_index(lane, table, shape))
        if table.status in shape.columns:
            found.append(await findings.push(lane, table, shape))
        return found

    def _ddl(self, shape: Relation | None) -> Ddl:
        return ddl_of(self.table, shape)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Reader[Sql]]:
        lane, statements = self._catalog_lane, Statements(self.table, await self._fit())
        now = await lane.value("select now()")
        yield Reader(statements, lambda sql: lane.rows(*sql), now, not_a_key=(asyncpg.DataError, BadInput))

    async def _ask_for_room(self) -> None:
        if self._push is not None:
            await self._push.ask_for_room()

    async def close(self) -> None:
        """See the contract."""
        if self._push is not None:
            await self._push.close()
        await self._connections.close()

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract. The worker writes its label into the rows that it claims."""
        length = self._at_work().statements.column_of("worker").length
        if length is not None and len(card.label) > length:
            raise TableUnfit(
                f"table {self.table.name!r}: its column {self.table.worker!r} holds {length} characters, and this "
                f"worker is called {card.label!r}: set WORKER_ID to a shorter name, or widen the column"
            )
        await super().sign_on(card, lease_s)
        self._connections.await_heartbeat()
        self._doubts.is_id_unique = card.label != os.environ.get("WORKER_ID")

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        try:
            await super().sign_off(incarnation)
        except TableUnfit as error:
            logger.warning("%s; what this worker may have claimed without knowing stays as it is", error)

    async def _look(self, worker: str, most: int) -> Found:
        if self._doubts.are_due():
            await self._recover(worker)
        try:
            return await self._as_unfit(claim_rows(self._at_work(), self._refusals, worker, most, []))
        except REFUSED:
            raise  # it has changed nothing
        except BaseException as error:
            # A cancellation as well: the server may have claimed rows that this worker never hears of.
            if not isinstance(error, EverpollError) or isinstance(error, StoreUnavailable):
                self._doubts.begin()
            raise

    async def _recover(self, worker: str) -> None:
        if self._doubts.are_left:
            await self._as_unfit(self._at_work().recover(worker, self._claims.all().values()))
            self._doubts.settled()

    async def _settle(self, batch: Sequence[Settled]) -> set[int]:
        lost = await self._as_unfit(settle(self._settlements, self._at_work().statements, batch))
        if self._push is not None and any(not one.write.is_end for one in batch):
            # There is something to do now, or the next due time has changed.
            self._push.wake()
        return lost

    async def _states(self, keys: Sequence[Any]) -> list[Values]:
        [sql] = self._at_work().statements.states(keys)
        return await self._as_unfit(self._settlements.rows(*sql))

    async def back_off(self, delay_s: float) -> None:
        """See the contract."""
        await self._connector.reach.wait(delay_s)

    def _beats(self) -> PostgresBeats:
        return PostgresBeats(self._at_work().statements, self._heartbeats)

    async def _as_unfit(self, asked: Awaitable[T]) -> T:
        """Raise `TableUnfit` for what the user's table lacks: `everpoll migrate` cannot add it."""
        try:
            return await asked
        except SchemaOutdated as error:
            what = str(error).split(";", 1)[0]
            raise TableUnfit(
                f"table {self.table.name!r} has changed under way: {what}; `everpoll tables check` tells what it lacks"
            ) from error
