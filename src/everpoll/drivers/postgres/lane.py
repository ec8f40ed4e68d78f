"""Lanes: each call finds a connection that works, or says that the store is unavailable.

Promises: one statement at a time per lane, in the order of the calls. A connection that broke, was cut, belongs to
another event loop or to the parent of a fork is replaced by the next call. Nothing waits longer than the command
timeout, whatever hangs.
Never: keeps state in a session (no SET, no session locks), so that a transaction pooler may stand between, and any
lane may use any connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from everpoll.drivers.postgres import faults
from everpoll.drivers.postgres.connections import ConnectionRequest, Connections, Slot
from everpoll.drivers.postgres.connector import SHARED_STATEMENT_TRIES, Connection, Connector

__all__ = ["Connection", "Connector", "Lane"]

T = TypeVar("T")

# The C library returns to the system what a statement has used, and the next one faults it in page by page:
# measured, 168 faults a lease of 500 rows against 42, and 0.7 us of 5.5 a row. Once a large piece was freed, the
# process keeps such amounts. A piece of 4 MB, made of few and only once (a constant would be made by the planner too):
# 4 ms; a character at a time it takes 35.
KEEP_MEMORY = "select octet_length(repeat(x, 2048)) from (select repeat('x', 2048) as x offset 0) as piece"


class Lane:
    """Runs calls of one kind, one at a time. Busy: most answers are large. Slow: a call may take long.

    `on_connect` is called before the first statement, and before the next one after any connection of the store broke.
    """

    def __init__(
        self,
        connections: Connections | Connector,
        home: int = 0,
        *,
        is_busy: bool = False,
        is_slow: bool = False,
        opens: bool = False,
        on_connect: Callable[[], None] | None = None,
    ) -> None:
        self._connections = connections if isinstance(connections, Connections) else Connections(connections)
        self._connector = self._connections.connector
        self._request = ConnectionRequest(home, is_slow, opens)
        self._is_busy = is_busy
        self._on_connect = on_connect
        self._last: Slot | None = None
        self._breaks = -1
        self._home: object = None
        self._lock = asyncio.Lock()

    async def row(self, sql: str, *args: Any) -> Any:
        """Return the first row of the answer."""
        return await self.call(lambda connection: connection.fetchrow(sql, *args))

    async def rows(self, sql: str, *args: Any) -> list[Any]:
        """Return the whole answer."""
        return await self.call(lambda connection: connection.fetch(sql, *args))

    async def value(self, sql: str, *args: Any) -> Any:
        """Return the first column of the first row."""
        return await self.call(lambda connection: connection.fetchval(sql, *args))

    async def call(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something with the connection; raise its errors as those of the contract."""
        self._bind_to_event_loop()
        reach = self._connector.reach
        try:
            async with asyncio.timeout(self._connector.address.command_timeout_s), self._lock:
                answer = await self._use(use)
        except Exception as error:
            if faults.is_outage(error):
                self._connections.breaks += 1
                reach.lost()
            if (meant := faults.while_asking(error, self._connector.address)) is None:
                raise
            raise meant from error
        if reach.is_away:
            reach.reached()
        return answer

    def pin_connection(self) -> Slot:
        """Use only the connection that was used last from now on."""
        assert self._last is not None, "nothing was asked yet"
        self._request = ConnectionRequest(only=self._last)
        return self._last

    async def _use(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        for tries_left in range(SHARED_STATEMENT_TRIES, -1, -1):
            slot = self._connections.take(self._request) or await self._connections.borrow(self._request)
            try:
                if self._is_busy and not slot.is_warm:
                    await _warm(slot)
                self._last = slot
                if self._breaks != self._connections.breaks:
                    self._connected()
                return await use(slot.connection)
            except BaseException as error:
                if not _keeps_connection(error):
                    self._connections.drop(slot)
                if not (tries_left and faults.is_shared_statement(error)):
                    raise
                # Refused before anything was executed: it may be asked again, on a connection with a fresh memory.
                self._connector.shares_statements()
                self._connections.drop(slot)
            finally:
                self._connections.put_back(slot)
        raise AssertionError("the last try returns or raises")

    def _connected(self) -> None:
        self._breaks = self._connections.breaks
        if self._on_connect is not None:
            self._on_connect()

    def _bind_to_event_loop(self) -> None:
        self._connections.bind_to_event_loop()
        if self._home is not self._connections.home:
            self._home, self._lock, self._last = self._connections.home, asyncio.Lock(), None

    @property
    def pid(self) -> int:
        """The server process that answered last, or 0."""
        if self._last is None or not self._last.is_live or self._last.connection is None:
            return 0
        return int(self._last.connection.get_server_pid())

    async def close(self) -> None:
        """Close the connections, also for the other lanes that share them."""
        await self._connections.close()


async def _warm(slot: Slot) -> None:
    assert slot.connection is not None, "it was borrowed"
    await slot.connection.execute(KEEP_MEMORY)
    slot.is_warm = True


def _keeps_connection(error: BaseException) -> bool:
    """Return whether the connection may go on. After a cancellation, also by a timeout, it may still be busy."""
    if isinstance(error, asyncpg.PostgresError):
        return not faults.ends_connection(error)
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
