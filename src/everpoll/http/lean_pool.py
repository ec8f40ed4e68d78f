"""The idle connections of one event loop.

Promises: at most `max_idle` connections; the connection that has been idle for longest is closed to make
room. No connection is kept beyond its age, so that changes of DNS records and certificates are seen.
"""

import asyncio
from collections.abc import Hashable

from everpoll.http.lean_connection import LeanConnection

SWEEP_S = 5.0
_FEWEST, _MOST = 64, 16_384


def max_idle() -> int:
    """Return how many connections may be idle: a quarter of this process's limit of file descriptors."""
    try:
        import resource  # noqa: PLC0415 - not on Windows

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError):
        return _FEWEST
    return _MOST if limit == resource.RLIM_INFINITY else min(max(limit // 4, _FEWEST), _MOST)


class LeanPool:
    """The idle connections of one event loop, by the requests that may use them."""

    def __init__(self, max_idle: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._max_idle = max_idle
        self._by_key: dict[Hashable, list[LeanConnection]] = {}
        self._oldest_first: dict[LeanConnection, None] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._oldest_first)

    def take(self, key: Hashable, now: float) -> LeanConnection | None:
        """Return the usable connection that was used last: the remote is least likely to close it soon."""
        waiting = self._by_key.get(key)
        while waiting:
            connection = waiting.pop()
            if not waiting:
                del self._by_key[key]
            del self._oldest_first[connection]
            if connection.is_open and now < connection.use_until:
                return connection
            connection.abort()
        return None

    def give(self, key: Hashable, connection: LeanConnection) -> None:
        """Keep a connection for the next request."""
        while len(self._oldest_first) >= max(self._max_idle, 1):
            self._drop(next(iter(self._oldest_first)))
        connection.pool_key = key
        self._oldest_first[connection] = None
        waiting = self._by_key.get(key)
        if waiting is None:
            self._by_key[key] = [connection]
        else:
            waiting.append(connection)
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(SWEEP_S, self._sweep)

    def clear(self) -> None:
        """Close all connections."""
        for connection in tuple(self._oldest_first):
            self._drop(connection)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    async def close(self) -> None:
        """Close all connections, and let the event loop close their sockets."""
        self.clear()
        # Sockets are closed in the next round of the event loop, which may be its last.
        await asyncio.sleep(0)

    def _drop(self, connection: LeanConnection) -> None:
        del self._oldest_first[connection]
        waiting = self._by_key[connection.pool_key]
        waiting.remove(connection)
        if not waiting:
            del self._by_key[connection.pool_key]
        connection.abort()

    def _sweep(self) -> None:
        """Drop connections that the other side has closed, or that are too old."""
        self._sweeping, now = None, self.loop.time()
        for connection in [one for one in self._oldest_first if not one.is_open or now >= one.use_until]:
            self._drop(connection)
        if self._oldest_first:
            self._sweeping = self.loop.call_later(SWEEP_S, self._sweep)
