"""The few connections that all lanes of a store share: opened when needed, closed when other processes need them.

    unconnected ──borrow──▶ opening ──▶ busy ◀──borrow / return ────▶ idle ──unused for IDLE_S──▶ unconnected
         ▲                     │                                       │
         └── refused, failed ──┴──────────────── broken ───────────────┘

Promises: at most `size` connections at a time, each used by one lane at a time, in the order in which the lanes asked.
A lane takes its preferred connection if that is idle, else another idle one, else opens one. A slow statement never
takes the connection that listens while there is another one, so it delays neither notifications nor the lanes that
share it.

If the server refuses another connection (too many for the server, the database or the role), the lanes share the open
ones, and try to open more later, at random times. The heartbeat comes first: until it is connected, the lanes have one
connection; while the server refuses the heartbeat's, they close theirs that are idle. Idle connections are closed when
another process needs one.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import NamedTuple

from everpoll.drivers.postgres.connector import CLOSE_TIMEOUT_S, Connection, Connector, close_gently
from everpoll.drivers.postgres.faults import ConnectionsUsedUp
from everpoll.errors import EverpollError
from everpoll.policy import Backoff

logger = logging.getLogger("everpoll.stores")

IDLE_S = 60.0
"""A connection that was not used for this long is closed, except the last one and the listening one."""
GROW_AGAIN = Backoff("2s", cap="60s", jitter=0.5)
"""The waits before another connection is tried after a refusal."""
ROOM_S = 5.0
"""For about this long, a process that was asked for room opens no further connection."""
HEARTBEAT_TURN_S = 1.5
"""For this long, the lanes open no connection after the heartbeat was refused: it tries again within a second."""
HEARTBEAT_DUE_S = 0.5
"""For this long, the lanes open no second connection while a heartbeat that was announced has none."""

# Connections of the parent, in the child of a fork. They are never used and never freed: the destructor would remove
# the socket from the selector that parent and child share, and the parent would wait for its answers for ever.
_left_by_parent: list[Connection] = []


class PooledConnection:
    """One of the connections that the lanes share; it may be open or not."""

    __slots__ = ("connection", "idle_since", "is_busy", "is_leaving", "is_warm", "on_drop")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.is_busy = False
        self.is_leaving = False
        self.is_warm = False
        self.idle_since = 0.0
        self.on_drop: Callable[[], None] | None = None
        """Set while the connection listens: called when this process closes it."""

    @property
    def is_live(self) -> bool:
        """True if the connection is open, as far as this process knows."""
        return self.connection is not None and not self.connection.is_closed()

    def emptied(self) -> Connection | None:
        """Return the connection and forget it; notify its listener."""
        connection, self.connection = self.connection, None
        on_drop, self.on_drop = self.on_drop, None
        self.is_leaving = self.is_warm = False
        if on_drop is not None:
            on_drop()
        return connection


class ConnectionRequest(NamedTuple):
    """Which connection a lane wants."""

    preferred: int = 0
    """The number of the connection that the lane wants if it is free."""
    is_slow: bool = False
    opens: bool = False
    """Open the preferred connection rather than take another idle one."""
    only: PooledConnection | None = None


class Connections:
    """The connections of one store in one process.

    `ask_for_room` tells the other processes that this one has no connection for its heartbeat.
    """

    def __init__(
        self, connector: Connector, size: int = 1, ask_for_room: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.connector = connector
        self._ask_for_room = ask_for_room
        self.bound_to: tuple[int, asyncio.AbstractEventLoop] | None = None
        self.breaks = 0
        """How often a connection broke. After a break, another server may answer, which does not know earlier
        statements."""
        self._pooled = [PooledConnection() for _ in range(size)]
        self._waiting: list[tuple[ConnectionRequest, asyncio.Future[PooledConnection]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._retiring: asyncio.TimerHandle | None = None
        self._rng = random.Random()  # noqa: S311 - jitter needs no secrecy
        self._refusals = 0
        self._has_warned = False
        self._grow_at = self._open_at = self._heartbeat_due_at = 0.0
        self._heartbeat_here = asyncio.Event()

    @property
    def size(self) -> int:
        """How many connections there are at most."""
        return len(self._pooled)

    @property
    def pids(self) -> set[int]:
        """The server processes of these connections: their notifications come from this process."""
        return {
            int(pooled.connection.get_server_pid()) for pooled in self._pooled if pooled.connection and pooled.is_live
        }

    def take(self, request: ConnectionRequest) -> PooledConnection | None:
        """Return an idle connection, or None if `borrow` would have to wait. This is the ordinary and fast case."""
        pooled = self._pick(request)
        if pooled is None or not pooled.is_live:
            return None
        pooled.is_busy = True
        return pooled

    async def borrow(self, request: ConnectionRequest) -> PooledConnection:
        """Return a live connection, for one statement or transaction. Call `put_back` with it, whatever happens."""
        while True:
            pooled = self._pick(request)
            if pooled is None:
                pooled = await self._turn(request)
            pooled.is_busy = True
            if pooled.is_live:
                return pooled
            try:
                await self._open(pooled)
            except ConnectionsUsedUp as error:
                self._refused(pooled, error)
                has_others = any(one is not pooled and (one.is_live or one.is_busy) for one in self._pooled)
                self.put_back(pooled)
                if not has_others or request.only is not None:
                    raise
            except BaseException:
                self.put_back(pooled)
                raise
            else:
                return pooled

    def put_back(self, pooled: PooledConnection) -> None:
        """Give the connection to the next lane that waits."""
        pooled.is_busy = False
        pooled.idle_since = asyncio.get_running_loop().time()
        if pooled.is_leaving:
            self._close_gently(pooled)
        if self._waiting:
            self._serve()

    def drop(self, pooled: PooledConnection) -> None:
        """Close a connection at once, without a message to the server: its state is unknown."""
        connection = self._emptied(pooled)
        if connection is not None:
            # The event loop that it belongs to may be closed.
            with contextlib.suppress(RuntimeError):
                connection.terminate()

    def bind_to_event_loop(self) -> None:
        """Drop the connections of another event loop, or of the parent of a fork, without using them."""
        here = (os.getpid(), asyncio.get_running_loop())
        if self.bound_to == here:
            return
        for pooled in self._pooled:
            if self.bound_to is not None and self.bound_to[0] == here[0]:
                self.drop(pooled)
            elif pooled.connection is not None:
                _left_by_parent.append(pooled.connection)
        self._pooled = [PooledConnection() for _ in self._pooled]
        self._waiting, self._tasks, self._retiring = [], set(), None
        self._grow_at = self._open_at = self._heartbeat_due_at = 0.0
        self._heartbeat_here = asyncio.Event()
        self.breaks += 1
        self.bound_to = here

    async def close(self) -> None:
        """Close every connection, gracefully if that is quick, else at once."""
        self.bind_to_event_loop()
        if self._retiring is not None:
            self._retiring.cancel()
            self._retiring = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for pooled in self._pooled:
                    if pooled.is_busy:
                        await self._turn(ConnectionRequest(only=pooled))
                    self._close_gently(pooled)
                    pooled.is_busy = False
                await asyncio.gather(*self._tasks, return_exceptions=True)
        for pooled in self._pooled:
            self.drop(pooled)
        self.breaks += 1

    def heartbeats(self) -> Connector:
        """Return the connector of heartbeats, which connect in threads of their own, before the lanes."""
        return self.connector.for_heartbeat(
            lambda: self._from_thread(self._heartbeat_connected), lambda: self._from_thread(self._heartbeat_refused)
        )

    def await_heartbeat(self) -> None:
        """Open no second connection until the heartbeat, which is about to connect, has its own."""
        self._heartbeat_due_at = asyncio.get_running_loop().time() + HEARTBEAT_DUE_S
        self._heartbeat_here.clear()

    async def heartbeat_is_here(self) -> None:
        """Wait for a heartbeat that was announced, as long as it may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._heartbeat_due_at):
                await self._heartbeat_here.wait()

    def _from_thread(self, function: Callable[[], None]) -> None:
        if self.bound_to is not None and self.bound_to[0] == os.getpid():
            with contextlib.suppress(RuntimeError):  # that event loop is closed
                self.bound_to[1].call_soon_threadsafe(function)

    def _heartbeat_connected(self) -> None:
        self._open_at = self._heartbeat_due_at = 0.0
        self._heartbeat_here.set()

    def _heartbeat_refused(self) -> None:
        """Free a connection for the heartbeat, here and in other processes: without it, no task may be leased."""
        self._open_at = asyncio.get_running_loop().time() + HEARTBEAT_TURN_S
        self._spawn(self._yield_to_heartbeat())

    async def _yield_to_heartbeat(self) -> None:
        if self._ask_for_room is not None and any(pooled.is_live for pooled in self._pooled):
            with contextlib.suppress(EverpollError):
                await self._ask_for_room()
        for pooled in self._extra() or [pooled for pooled in self._pooled if pooled.is_live]:
            self.retire(pooled)

    def make_room(self) -> None:
        """Close all connections but one: the server refuses one that another process needs."""
        self._grow_at = asyncio.get_running_loop().time() + ROOM_S * (0.5 + self._rng.random())
        for pooled in self._extra():
            self.retire(pooled)

    def _pick(self, request: ConnectionRequest) -> PooledConnection | None:
        if request.only is not None:
            return None if request.only.is_busy else request.only
        preferred = self._pooled[min(request.preferred, self.size - 1)]
        if preferred.is_live and not preferred.is_busy and not (request.is_slow and preferred.on_drop is not None):
            return preferred
        idle = [pooled for pooled in (preferred, *self._pooled) if not pooled.is_busy]
        may_grow = self._may_grow(request)
        if request.opens and may_grow and not preferred.is_busy:
            return preferred
        if request.is_slow and any(pooled.on_drop is None and (pooled.is_live or may_grow) for pooled in self._pooled):
            idle = [pooled for pooled in idle if pooled.on_drop is None]
        live = next((pooled for pooled in idle if pooled.is_live), None)
        return live or (next(iter(idle), None) if may_grow else None)

    def _may_grow(self, request: ConnectionRequest) -> bool:
        if not any(pooled.is_live or pooled.is_busy for pooled in self._pooled):
            return True
        # A slow statement does not wait for the heartbeat: it would block the only open connection.
        return asyncio.get_running_loop().time() >= max(
            self._grow_at, 0.0 if request.is_slow else self._heartbeat_due_at
        )

    async def _turn(self, request: ConnectionRequest) -> PooledConnection:
        """Wait for a connection in the order of the requests; it is marked busy when this returns."""
        turn: asyncio.Future[PooledConnection] = asyncio.get_running_loop().create_future()
        entry = (request, turn)
        self._waiting.append(entry)
        try:
            return await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.put_back(turn.result())
            raise
        finally:
            self._waiting = [one for one in self._waiting if one is not entry]

    def _serve(self) -> None:
        for request, turn in self._waiting:
            if not turn.done() and (pooled := self._pick(request)) is not None:
                pooled.is_busy = True
                turn.set_result(pooled)

    async def _open(self, pooled: PooledConnection) -> None:
        event_loop = asyncio.get_running_loop()
        self._emptied(pooled)
        if (wait_s := self._open_at - event_loop.time()) > 0:
            await asyncio.sleep(wait_s)
        pooled.connection = await self.connector.connect()
        if all(one.is_live for one in self._pooled):
            self._refusals = 0
        if self._retiring is None and self._extra():
            self._retiring = event_loop.call_later(IDLE_S, self._retire)

    def _refused(self, pooled: PooledConnection, error: ConnectionsUsedUp) -> None:
        self._refusals += 1
        self._grow_at = asyncio.get_running_loop().time() + GROW_AGAIN.delay(self._refusals, self._rng)
        count = sum(one is not pooled and one.is_live for one in self._pooled)
        if count and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s: this process works with %d connections and its heartbeat's; this is logged once", error, count
            )

    def _extra(self) -> list[PooledConnection]:
        """Return every open connection but one: that is the listening one, else the most recently used one."""
        live = [pooled for pooled in self._pooled if pooled.is_live]
        live.sort(key=lambda pooled: (pooled.on_drop is not None, pooled.is_busy, pooled.idle_since))
        return live[:-1]

    def _retire(self) -> None:
        event_loop = asyncio.get_running_loop()
        for pooled in self._extra():
            if not pooled.is_busy and event_loop.time() - pooled.idle_since >= IDLE_S:
                self._close_gently(pooled)
        extra = self._extra()
        since = min((pooled.idle_since for pooled in extra if not pooled.is_busy), default=event_loop.time())
        self._retiring = event_loop.call_at(since + IDLE_S, self._retire) if extra else None

    def retire(self, pooled: PooledConnection) -> None:
        """Close the connection now, or once its statement has ended."""
        pooled.is_leaving = pooled.is_busy
        if not pooled.is_busy:
            self._close_gently(pooled)

    def _emptied(self, pooled: PooledConnection) -> Connection | None:
        """Return the connection and forget it. If it is closed already, count that it broke."""
        connection = pooled.emptied()
        if connection is not None and connection.is_closed():
            self.breaks += 1
        return connection

    def _close_gently(self, pooled: PooledConnection) -> None:
        connection = self._emptied(pooled)
        if connection is not None:
            self._spawn(close_gently(connection))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="everpoll-connections")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
