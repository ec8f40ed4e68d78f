"""Lane: runs calls one at a time, each on a connection that works, or raises `StoreUnavailable`.

Promises: one statement at a time for each lane, in the order of the calls. If a connection broke, or belongs to another
event loop or to the parent of a fork, the next call replaces it. No call waits longer than the command timeout. Never:
keeps state in a session (no SET, no session locks). So a transaction pooler may be used, and any lane may use any
connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from everpoll.drivers.postgres import faults
from everpoll.drivers.postgres.connections import ConnectionRequest, Connections, PooledConnection
from everpoll.drivers.postgres.connector import SHARED_STATEMENT_TRIES, Connection, Connector

__all__ = ["Connection", "Connector", "Lane"]

T = TypeVar("T")

# The C library of the server returns the memory of a statement to the system, and the next statement gets it back page
# by page: measured, 168 page faults for a lease of 500 rows, and 42 without that; 0.7 of 5.5 us for each row. Once a
# large piece was freed, the process keeps the memory. This statement makes a piece of 4 MB from few parts, in 4 ms (35
# ms from single characters), and makes it once: with a constant, the planner would make it, too.
KEEP_MEMORY = "select octet_length(repeat(x, 2048)) from (select repeat('x', 2048) as x offset 0) as piece"


class Lane:
    """Runs calls of one kind, one at a time. `is_busy`: most answers are large. `is_slow`: a call may take long.

    `on_connect` is called before the first statement, and before the next one after any connection of the store broke.
    """

    def __init__(
        self,
        connections: Connections | Connector,
        preferred: int = 0,
        *,
        is_busy: bool = False,
        is_slow: bool = False,
        opens: bool = False,
        on_connect: Callable[[], None] | None = None,
    ) -> None:
        self._connections = connections if isinstance(connections, Connections) else Connections(connections)
        self._connector = self._connections.connector
        self._request = ConnectionRequest(preferred, is_slow, opens)
        self._is_busy = is_busy
        self._on_connect = on_connect
        self._last: PooledConnection | None = None
        self._breaks = -1
        self._bound_to: object = None
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
        """Call `use` with a connection; raise errors of the driver as those of the contract."""
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

    def pin_connection(self) -> PooledConnection:
        """From now on, use only the connection that was used last."""
        assert self._last is not None, "no statement was sent yet"
        self._request = ConnectionRequest(only=self._last)
        return self._last

    async def _use(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        for tries_left in range(SHARED_STATEMENT_TRIES, -1, -1):
            pooled = self._connections.take(self._request) or await self._connections.borrow(self._request)
            try:
                if self._is_busy and not pooled.is_warm:
                    await _warm(pooled)
                self._last = pooled
                if self._breaks != self._connections.breaks:
                    self._connected()
                return await use(pooled.connection)
            except BaseException as error:
                if not _keeps_connection(error):
                    self._connections.drop(pooled)
                if not (tries_left and faults.is_shared_statement(error)):
                    raise
                # Refused before anything was executed: try again, on a connection without remembered statements.
                self._connector.shares_statements()
                self._connections.drop(pooled)
            finally:
                self._connections.put_back(pooled)
        raise AssertionError("the last try returns or raises")

    def _connected(self) -> None:
        self._breaks = self._connections.breaks
        if self._on_connect is not None:
            self._on_connect()

    def _bind_to_event_loop(self) -> None:
        self._connections.bind_to_event_loop()
        if self._bound_to is not self._connections.bound_to:
            self._bound_to, self._lock, self._last = self._connections.bound_to, asyncio.Lock(), None

    @property
    def pid(self) -> int:
        """The server process that answered last, or 0."""
        if self._last is None or not self._last.is_live or self._last.connection is None:
            return 0
        return int(self._last.connection.get_server_pid())

    async def close(self) -> None:
        """Close the connections, also those of the other lanes that share them."""
        await self._connections.close()


async def _warm(pooled: PooledConnection) -> None:
    assert pooled.connection is not None, "it was borrowed"
    await pooled.connection.execute(KEEP_MEMORY)
    pooled.is_warm = True


def _keeps_connection(error: BaseException) -> bool:
    """Return True if the connection can still be used. After a cancellation or a timeout it may be busy."""
    if isinstance(error, asyncpg.PostgresError):
        return not faults.ends_connection(error)
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
