"""Connections that mend themselves: each call finds a working one, or says that the store is unavailable.

Promises: one statement at a time per lane. A connection that broke, was cut, belongs to another event loop or to the
parent of a fork is replaced by the next call. Nothing waits longer than the command timeout, whatever hangs.
Never: keeps state in a session (no SET, no session locks), so that a transaction pooler may stand between.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from everpoll.drivers.postgres import arrays, faults
from everpoll.drivers.postgres.address import Address

logger = logging.getLogger("everpoll.stores")

T = TypeVar("T")
Connection = Any  # asyncpg has no types

CLOSE_TIMEOUT_S = 2.0
SHARED_STATEMENT_TRIES = 2
"""How often prepared statements may be missing before we do without them."""

# The C library gives back to the system what a statement has used, and the next one faults it in page by page:
# measured, 168 faults a lease of 500 rows against 42, and 0.7 us of 5.5 a row. Once a large piece was freed, the
# process keeps such amounts. A piece of 4 MB, made of few and only once (a constant would be made by the planner too):
# 4 ms; a character at a time it takes 35.
KEEP_MEMORY = "select octet_length(repeat(x, 2048)) from (select repeat('x', 2048) as x offset 0) as piece"

# What a fork left in the child. Never used, and never freed either: a destructor would take the socket out of the
# selector that parent and child share, and the parent would wait for its answers for ever.
_left_by_parent: list[Connection] = []


class Dial:
    """How this store connects; shared by all its lanes."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._statement_cache = address.statement_cache
        self._shared_statements = 0
        self._settings = dict(address.settings)

    async def connect(self) -> Connection:
        """A new connection."""
        try:
            connection = await asyncpg.connect(
                self.address.dsn,
                timeout=self.address.connect_timeout_s,
                statement_cache_size=self._statement_cache,
                max_cached_statement_lifetime=0,
                server_settings=self._settings,
            )
        except Exception as error:
            raise faults.while_connecting(error, self.address) from error
        arrays.introduce(connection)
        return connection

    def insist_on_read_committed(self) -> None:
        """Where the database has another default, from the next connection on. Usually not said: poolers refuse it."""
        self._settings["default_transaction_isolation"] = "read committed"

    def shares_statements(self) -> None:
        """A pooler mixed up prepared statements: from the second time on, do without."""
        self._shared_statements += 1
        if self._shared_statements >= SHARED_STATEMENT_TRIES and self._statement_cache:
            self._statement_cache = 0
            logger.warning(
                "prepared statements get lost between here and Postgres, as behind a transaction pooler: doing without "
                "them from now on; ?statement_cache=0 in the address says so from the start"
            )


class Lane:
    """One connection, for one kind of call; a busy one for large answers, again and again."""

    def __init__(self, dial: Dial, *, busy: bool = False) -> None:
        self._dial = dial
        self._busy = busy
        self._connection: Connection | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._lock = asyncio.Lock()
        self.on_connect: Callable[[], None] | None = None

    async def row(self, sql: str, *args: Any) -> Any:
        """The first row of the answer."""
        return await self.call(lambda connection: connection.fetchrow(sql, *args))

    async def rows(self, sql: str, *args: Any) -> list[Any]:
        """The whole answer."""
        return await self.call(lambda connection: connection.fetch(sql, *args))

    async def value(self, sql: str, *args: Any) -> Any:
        """The first column of the first row."""
        return await self.call(lambda connection: connection.fetchval(sql, *args))

    async def call(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something with the connection; errors come as the contract has them."""
        self._come_home()
        try:
            async with asyncio.timeout(self._dial.address.command_timeout_s), self._lock:
                try:
                    return await self._use(use)
                except BaseException as error:
                    self._judge(error)
                    raise
        except Exception as error:
            if (meant := faults.while_asking(error, self._dial.address)) is None:
                raise
            raise meant from error

    async def _use(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        for _ in range(SHARED_STATEMENT_TRIES):
            try:
                return await use(await self._ready())
            except asyncpg.PostgresError as error:
                if not faults.is_shared_statement(error):
                    raise
                # Refused before anything was executed: it may be asked again, on a connection with a fresh memory.
                self._dial.shares_statements()
                self.drop()
        return await use(await self._ready())

    async def _ready(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._dial.connect()
            if self._busy:
                await self._connection.execute(KEEP_MEMORY)
            if self.on_connect is not None:
                self.on_connect()
        return self._connection

    def _judge(self, error: BaseException) -> None:
        """Whether the connection may go on. After a cancellation (a timeout is one) nobody knows what it still does."""
        if isinstance(error, asyncpg.PostgresError) and not faults.ends_connection(error):
            return
        if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
            return
        self.drop()

    def _come_home(self) -> None:
        """In another event loop, or after a fork, what we have is not ours to use, nor to say goodbye on."""
        here = (os.getpid(), asyncio.get_running_loop())
        if self._home != here:
            if self._home is not None and self._home[0] == here[0]:
                self.drop()
            elif self._connection is not None:
                _left_by_parent.append(self._connection)
            self._connection, self._lock, self._home = None, asyncio.Lock(), here

    @property
    def pid(self) -> int:
        """The server process at the other end, or 0: what it notifies comes from here."""
        if self._connection is None or self._connection.is_closed():
            return 0
        return int(self._connection.get_server_pid())

    def drop(self) -> None:
        """Let go at once, without a word."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # The event loop that it belongs to may be closed.
            with contextlib.suppress(RuntimeError):
                connection.terminate()

    async def close(self) -> None:
        """Let go in peace."""
        self._come_home()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S), self._lock:
                connection, self._connection = self._connection, None
                if connection is not None:
                    await part(connection)
        self.drop()


async def part(connection: Connection) -> None:
    """Close a connection, gracefully if that does not take long."""
    try:
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            await connection.close(timeout=CLOSE_TIMEOUT_S)
    finally:
        connection.terminate()
