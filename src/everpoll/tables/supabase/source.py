"""The user's own table behind PostgREST as a source of the engine.

    closed ──open: look at the table──▶ open ──sign on──▶ claim · beat · settle ──sign off──▶ closed

The guards `status`, `version` and `timestamp` need nothing in the database. `skip_locked` needs two functions, whose
DDL `everpoll tables ddl` prints. Push comes from Supabase Realtime if the address is that of a project; else workers
poll.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from everpoll.drivers.postgrest.address import address_of
from everpoll.drivers.postgrest.clock import DatabaseClock
from everpoll.drivers.postgrest.http import Http, Link, Request
from everpoll.drivers.postgrest.token import Key, Token
from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput
from everpoll.tables.claiming import Found
from everpoll.tables.contract import Finding
from everpoll.tables.ddl import Ddl
from everpoll.tables.findings import absent, columns
from everpoll.tables.mapping import Table
from everpoll.tables.overview import Reader
from everpoll.tables.settling import Settled
from everpoll.tables.shape import Column, Shape
from everpoll.tables.source import TableSource
from everpoll.tables.statements import Values
from everpoll.tables.supabase import findings
from everpoll.tables.supabase.claiming import SupabaseClaiming
from everpoll.tables.supabase.ddl import ddl_of
from everpoll.tables.supabase.heartbeat_connection import SupabaseBeats
from everpoll.tables.supabase.push import Realtime
from everpoll.tables.supabase.settling import Settling
from everpoll.tables.supabase.shape import Unusable, read_shape
from everpoll.tables.supabase.statements import Statements

logger = logging.getLogger("everpoll.tables")


class Opened(Struct):
    """The parts of an open table, on one event loop."""

    event_loop: asyncio.AbstractEventLoop
    http: Http
    statements: Statements
    claiming: SupabaseClaiming
    settling: Settling


class SupabaseTable(TableSource[Shape[Column], Opened]):
    """The table at that address: `https://….supabase.co`, or that of a PostgREST server."""

    def __init__(self, url: str, table: Table, token: Token | None = None) -> None:
        super().__init__(table)
        self._link = Link(
            address_of(url),
            Key(token, f"table {table.name!r}", DaemonThreads(limit=2, name="everpoll-token")),
            DatabaseClock(),
        )
        self._push = self._realtime = Realtime(self._link, table)
        # Until it was looked at, it is taken to have its key and nothing else.
        self._shape = Shape(columns={table.key: Column(name=table.key, declared="")})

    def __repr__(self) -> str:
        return f"<SupabaseTable {self.table.name} at {self._link.address.rest}>"

    async def open(self) -> None:
        """See the contract."""
        event_loop = asyncio.get_running_loop()
        if self._opened is not None and self._opened.event_loop is event_loop:
            return
        if not self._link.address.is_private:
            logger.warning("table %s: the key travels unencrypted: write https://…", self.table.name)
        statements, http = self._statements(await self._fit()), self._http()
        claiming, settling = SupabaseClaiming(http, statements, self._refusals), Settling(http, statements)
        self._opened = Opened(event_loop, http, statements, claiming, settling)

    async def _examined(self) -> tuple[Shape[Column] | None, list[Finding]]:
        statements, ddl = self._statements(), self._ddl(None)
        async with self._http() as http:
            try:
                shape = await read_shape(http, statements)
            except Unusable as error:
                if error.is_absent:
                    return None, [absent(str(error), ddl)]
                return self._shape, [Finding(what="table", is_fit=False, detail=str(error))]
            found = columns(self.table, shape, ddl.add_column)
            if all(one.is_fit for one in found):
                found.append(await findings.may_write(http, statements))
                if statements.functions is not None:
                    found.append(await findings.functions_finding(http, statements, statements.functions))
            return shape, found

    async def close(self) -> None:
        """See the contract."""
        opened, self._opened = self._opened, None
        await self._realtime.close()
        if opened is not None and opened.event_loop is asyncio.get_running_loop():
            await opened.http.close()

    async def _further(self, shape: Shape[Column]) -> list[Finding]:
        found = []
        if all(one.is_fit for one in self._found if one.what.startswith("column")):
            async with self._http() as http:
                found.append(await findings.index_finding(http, self._statements(shape)))
        return [*found, await self._realtime.inspect()]

    def _ddl(self, shape: Shape[Column] | None) -> Ddl:
        del shape  # HTTP shows nothing that DDL depends on
        return ddl_of(self.table)

    def _statements(self, shape: Shape[Column] | None = None) -> Statements:
        """Return the statements; until the shape is known, columns are taken to be nullable."""
        return Statements(self.table, (shape or Shape(columns={})).is_required)

    def _http(self) -> Http:
        """Open connections for the length of a block."""
        self._link.key.settle_on(asyncio.get_running_loop())
        return Http(self._link)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Reader[Request]]:
        async with self._http() as http:
            yield Reader(self._statements(), http.rows, self._link.clock.now(), not_a_key=(BadInput,))

    async def _recover(self, worker: str) -> None:
        del worker  # each claim has its own
        if self._opened is not None:
            await self._opened.claiming.recover()

    async def _look(self, worker: str, most: int) -> Found:
        return await self._at_work().claiming.claim_all(worker, most)

    async def _settle(self, batch: Sequence[Settled]) -> set[int]:
        """Write the batch. It is one transaction only if the functions exist."""
        return await self._at_work().settling.settle(batch)

    async def _states(self, keys: Sequence[Any]) -> list[Values]:
        opened = self._at_work()
        return [row for request in opened.statements.states(keys) for row in await opened.http.rows(request)]

    def _beats(self) -> SupabaseBeats:
        return SupabaseBeats(self._at_work().statements, self._link)
