"""The user's own table behind PostgREST, as a source of the engine.

    closed ──open: look at the table──▶ open ──sign on──▶ claim · beat · settle ──sign off──▶ closed

Guards `status`, `version` and `timestamp` need nothing in the database. `skip_locked` needs two functions, which
are offered as DDL. Push comes from Supabase Realtime where the address is that of a project; else rows are polled for.
"""

import asyncio
import logging
from collections.abc import Sequence

from everpoll.drivers.wake import OnWake
from everpoll.errors import NotRunning, TableUnfit
from everpoll.stores.contract import LEASE_LIMIT, Leased, Pulse, Settlement, WorkerCard
from everpoll.tables.claims import Claims
from everpoll.tables.contract import Finding, Token
from everpoll.tables.findings import heartbeat_finding
from everpoll.tables.mapping import Table
from everpoll.tables.outages import Outages
from everpoll.tables.overview import RowState, StatusCount, TableWorker
from everpoll.tables.supabase import ddl, findings, reading
from everpoll.tables.supabase.address import address_of
from everpoll.tables.supabase.claiming import Claiming
from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.functions import Functions, functions_of
from everpoll.tables.supabase.http import Http, Link
from everpoll.tables.supabase.pulse import SupabasePulse
from everpoll.tables.supabase.realtime import Realtime
from everpoll.tables.supabase.settling import Settling
from everpoll.tables.supabase.shape import Shape, read_shape
from everpoll.tables.supabase.statements import Statements
from everpoll.tables.supabase.token import Key

logger = logging.getLogger("everpoll.tables")


class Opened:
    """What is there while the table is open, on one event loop."""

    def __init__(
        self, link: Link, http: Http, statements: Statements, claims: Claims, functions: Functions | None
    ) -> None:
        self.event_loop = asyncio.get_running_loop()
        self.http = http
        self.statements = statements
        self.claiming = Claiming(http, statements, claims, link.clock, functions)
        self.settling = Settling(http, statements, claims, link.clock, functions)


class SupabaseTable:
    """The table at that address: `https://….supabase.co`, or that of a PostgREST server."""

    beats_in_loop = False
    hand_over = None

    def __init__(self, url: str, table: Table, token: Token | None = None) -> None:
        self._table = table
        self._link = Link(address_of(url), Key(token, table.name), DatabaseClock())
        self._claims = Claims(table.name)
        self._realtime = Realtime(self._link, table)
        self._outages = Outages(table)
        self._workers: dict[int, str] = {}
        self._opened: Opened | None = None
        self._shape: Shape | None = Shape({table.key: None})
        """None: there is no such table. Until it was looked at, it is taken to have its key and nothing else."""

    def __repr__(self) -> str:
        return f"<SupabaseTable {self._table.name} at {self._link.address.rest}>"

    @property
    def has_push(self) -> bool:
        """Whether Realtime has confirmed that it tells of this table's changes."""
        return self._realtime.has_push

    @has_push.setter
    def has_push(self, _: bool) -> None:
        raise AttributeError("has_push is found out by listening")

    async def open(self) -> None:
        """Connect and look at the columns; `TableUnfit` names everything that is missing or wrong, at once."""
        event_loop = asyncio.get_running_loop()
        if self._opened is not None and self._opened.event_loop is event_loop:
            return
        if not self._link.address.is_private:
            logger.warning("table %s: the key travels unencrypted: write https://…", self._table.name)
        self._link.key.settle_on(event_loop)
        http = Http(self._link)
        try:
            self._opened = await self._looked_at(http)
        except BaseException:
            await http.close()
            raise

    async def _looked_at(self, http: Http) -> Opened:
        statements = Statements(self._table)
        shape, found = await self._examined(http, statements)
        problem = findings.unfit(self._table, found)
        if problem is not None:
            raise problem
        functions = functions_of(self._table, statements.read) if self._table.guard == "skip_locked" else None
        return Opened(self._link, http, Statements(self._table, shape.required), self._claims, functions)

    async def _examined(self, http: Http, statements: Statements) -> tuple[Shape, list[Finding]]:
        try:
            shape = self._shape = await read_shape(http, statements)
        except TableUnfit as error:
            self._shape = None if error.ddl else self._shape
            raise
        found = list(findings.findings(self._table, shape))
        if all(one.is_fit for one in found):
            found.append(await findings.may_write(http, statements))
            if self._table.guard == "skip_locked":
                are_there = await findings.has_functions(http, statements, self._link.clock)
                found.append(findings.functions_finding(statements, are_there=are_there))
        return shape, found

    async def close(self) -> None:
        """Let go of every connection. Repeatable."""
        opened, self._opened = self._opened, None
        await self._realtime.close()
        if opened is not None and opened.event_loop is asyncio.get_running_loop():
            await opened.http.close()

    async def inspect(self) -> list[Finding]:
        """What can be seen over HTTP: columns and their types, the key's rights, the functions, push."""
        async with self._http() as http:
            statements = Statements(self._table)
            try:
                _, found = await self._examined(http, statements)
                if all(one.is_fit for one in found if one.what.startswith("column")):
                    found.append(await findings.index_finding(http, statements))
            except TableUnfit as error:
                return [Finding(what="table", is_fit=False, detail=str(error), ddl="".join(error.ddl) or None)]
        return [*found, heartbeat_finding(self._table), await self._realtime.inspect()]

    def ddl(self) -> list[str]:
        """For Supabase's SQL editor: columns, the index of the poll query, the functions, the publication for push."""
        return ddl.ddl(Statements(self._table), None if self._shape is None else self._shape.columns)

    async def counts(self) -> list[StatusCount]:
        """See the contract."""
        async with self._http() as http:
            return await reading.counts(http, Statements(self._table))

    async def workers(self) -> list[TableWorker]:
        """See the contract."""
        async with self._http() as http:
            return await reading.workers(http, Statements(self._table), self._link.clock.now())

    async def row_state(self, key: str) -> RowState | None:
        """See the contract."""
        async with self._http() as http:
            return await reading.row_state(http, Statements(self._table), key, self._link.clock.now())

    def _http(self) -> Http:
        """Connections of their own, for the length of a block."""
        self._link.key.settle_on(asyncio.get_running_loop())
        return Http(self._link)

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """Its label is what the worker's column gets."""
        self._workers[card.incarnation] = card.label

    async def sign_off(self, incarnation: int) -> None:
        """Put back what claims without an answer may have brought."""
        self._workers.pop(incarnation, None)
        if self._opened is not None:
            await self._opened.claiming.give_up()

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """At most so many rows, best first."""
        wanted = min(most, LEASE_LIMIT)
        if wanted <= 0 or not rooms:
            return Leased([])
        return await self._at_work().claiming.claim(self._workers[incarnation], wanted)

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """Each row by its fence; one transaction only with the functions. The ids that were lost."""
        return await self._at_work().settling.settle(settlements)

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """Of those that were lost, the ids that an earlier try has settled."""
        return await self._at_work().settling.settled_before(settlements)

    async def note_loss(self, task_id: int, note: str) -> None:
        """An adopted table has no place for it; the log has it."""

    async def prune(self, older_than_s: float) -> int:
        """The user's rows are the user's."""
        return 0

    async def listen(self, on_wake: OnWake) -> None:
        """By Realtime, where the address has it; returns once it is known whether that works."""
        await self._realtime.add(on_wake)

    async def unlisten(self, on_wake: OnWake) -> None:
        """Stop calling it."""
        await self._realtime.remove(on_wake)

    async def back_off(self, delay_s: float) -> None:
        """See the contract. Requests have no connection that would have to come back."""
        await asyncio.sleep(delay_s)

    def pulse(self) -> Pulse:
        """Connections and an event loop of its own, for another thread."""
        opened = self._at_work()
        return SupabasePulse(self._link, opened.statements, self._claims, self._outages)

    def _at_work(self) -> Opened:
        if self._opened is None:
            raise NotRunning(f"table {self._table.name!r} is not open")
        return self._opened
