"""Connector: opens the connections of a store, with its address and session settings, and tracks reachability."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import asyncpg

from everpoll.drivers.postgres import arrays, faults
from everpoll.drivers.postgres.address import PostgresAddress
from everpoll.drivers.postgres.hosts import Host, first_usable
from everpoll.drivers.reachability import Reachability

logger = logging.getLogger("everpoll.stores")

Connection = Any  # asyncpg has no types

CLOSE_TIMEOUT_S = 2.0
SHARED_STATEMENT_TRIES = 2
"""How often prepared statements may be missing before none are used any more."""


class Connector:
    """Shared by all connections of a store.

    `on_connected` and `on_refused` are called in the thread that connects.
    """

    def __init__(
        self,
        address: PostgresAddress,
        *,
        sessions: "_Sessions | None" = None,
        on_connected: Callable[[], None] | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self._sessions = _Sessions(address) if sessions is None else sessions
        self.reach = self._sessions.reach
        self._on_connected = on_connected
        self._on_refused = on_refused

    def for_heartbeat(self, on_connected: Callable[[], None], on_refused: Callable[[], None]) -> "Connector":
        """Return a copy that calls one of these, in the heartbeat's thread, when it has connected or was refused."""
        return Connector(self.address, sessions=self._sessions, on_connected=on_connected, on_refused=on_refused)

    async def connect(self) -> Connection:
        """Open a connection. Raises `ConnectionsUsedUp` if the server allows no further one."""
        sessions = self._sessions
        try:
            if len(sessions.hosts) == 1:
                host, connection = sessions.hosts[0], await self._connect_to(sessions.hosts[0])
            else:
                host, connection = await first_usable(sessions.hosts, self._connect_to, lambda late: late.terminate())
        except Exception as error:
            meant = faults.while_connecting(error, self.address)
            if isinstance(meant, faults.ConnectionsUsedUp):
                if self._on_refused is not None:
                    self._on_refused()
            else:
                self.reach.lost()
            raise meant from error
        if host != sessions.hosts[0]:
            logger.warning("connected to Postgres at %s; %s is not used", host.place, sessions.hosts[0].place)
            sessions.hosts = sorted(sessions.hosts, key=host.__ne__)
        arrays.register_arrays(connection)
        if self._on_connected is not None:
            self._on_connected()
        return connection

    async def _connect_to(self, host: Host) -> Connection:
        return await asyncpg.connect(
            host.dsn,
            timeout=self.address.connect_timeout_s,
            statement_cache_size=self._sessions.statement_cache,
            max_cached_statement_lifetime=0,
            server_settings=self._sessions.settings,
            target_session_attrs=self.address.target,
        )

    def require_read_committed(self) -> None:
        """Request READ COMMITTED from the next connection on.

        Only if the database's default differs: poolers refuse it.
        """
        self._sessions.settings["default_transaction_isolation"] = "read committed"

    def shares_statements(self) -> None:
        """Note that a pooler lost prepared statements; from the second time on, use none."""
        self._sessions.shared_statements += 1
        if self._sessions.shared_statements >= SHARED_STATEMENT_TRIES and self._sessions.statement_cache:
            self._sessions.statement_cache = 0
            logger.warning(
                "prepared statements get lost on the way to Postgres, as behind a transaction pooler: none are used "
                "from now on; ?statement_cache=0 in the address does the same from the start"
            )


class _Sessions:
    """The settings of new sessions, adapted to the errors of earlier ones."""

    def __init__(self, address: PostgresAddress) -> None:
        self.reach = Reachability()
        self.statement_cache = address.statement_cache
        self.shared_statements = 0
        self.settings = dict(address.settings)
        self.hosts = list(address.hosts)
        """The host that worked last comes first."""


async def close_gently(connection: Connection) -> None:
    """Close a connection, gracefully if that does not take long."""
    try:
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            await connection.close(timeout=CLOSE_TIMEOUT_S)
    finally:
        connection.terminate()
