"""The few connections that all lanes of a store share: opened when needed, given up when other processes need them.

    unconnected ──borrow──▶ opening ──▶ busy ◀──borrow / return ────▶ idle ──unused for IDLE_S──▶ unconnected
         ▲                     │                                       │
         └── refused, failed ──┴──────────────── broken ───────────────┘

Promises: at most `size` at a time, each used by one lane at a time, in the order in which the lanes asked. A lane takes
the connection that it used before if that is idle, else another idle one, else opens one. A slow statement never takes
the connection that listens while there is another, so it delays neither notifications nor the lanes that share it.

Where the server refuses one more (too many for the server, the database or the role), the lanes share what there is,
and growing is tried again later, spread by chance. The heartbeat goes first: until it is connected, the lanes have one;
while the server refuses it, they give up what is idle. Never: keeps idle connections that other processes need.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import NamedTuple

from everpoll.drivers.postgres.connector import CLOSE_TIMEOUT_S, Connection, Connector, part
from everpoll.drivers.postgres.faults import ConnectionsUsedUp
from everpoll.errors import EverpollError
from everpoll.policy import Backoff

logger = logging.getLogger("everpoll.stores")

IDLE_S = 60.0
"""A connection that was not used for so long is closed, except the last one and the listening one."""
GROW_AGAIN = Backoff("2s", cap="60s", jitter=0.5)
"""After a refusal."""
ROOM_S = 5.0
"""For about so long a process that was asked for room opens no further connection."""
HEARTBEAT_TURN_S = 1.5
"""For so long the lanes open nothing after the heartbeat was refused: it tries again within a second."""
HEARTBEAT_DUE_S = 0.5
"""For so long the lanes wait with their second connection for a heartbeat that was announced."""

# What a fork left in the child. Never used, and never freed either: a destructor would take the socket out of the
# selector that parent and child share, and the parent would wait for its answers for ever.
_left_by_parent: list[Connection] = []


class Slot:
    """A place for one connection."""

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
        """Whether there is a connection, as far as known not closed."""
        return self.connection is not None and not self.connection.is_closed()

    def emptied(self) -> Connection | None:
        """Take the connection out, and notify its listener."""
        connection, self.connection = self.connection, None
        on_drop, self.on_drop = self.on_drop, None
        self.is_leaving = self.is_warm = False
        if on_drop is not None:
            on_drop()
        return connection


class ConnectionRequest(NamedTuple):
    """Which connection a lane wants."""

    home: int = 0
    is_slow: bool = False
    opens: bool = False
    """Open the home slot rather than take another idle connection."""
    only: Slot | None = None


class Connections:
    """The connections of one store in one process.

    `ask_for_room` tells the other processes that one of them has no connection for its heartbeat.
    """

    def __init__(
        self, connector: Connector, size: int = 1, ask_for_room: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.connector = connector
        self._ask_for_room = ask_for_room
        self.home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self.breaks = 0
        """How often a connection broke: after that the server may have forgotten what it had answered."""
        self._slots = [Slot() for _ in range(size)]
        self._waiting: list[tuple[ConnectionRequest, asyncio.Future[Slot]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._retiring: asyncio.TimerHandle | None = None
        self._rng = random.Random()  # noqa: S311 - jitter needs no secrecy
        self._refusals = 0
        self._has_warned = False
        self._grow_at = self._open_at = self._heartbeat_due_at = 0.0
        self._heartbeat_here = asyncio.Event()

    @property
    def size(self) -> int:
        """At most so many."""
        return len(self._slots)

    @property
    def pids(self) -> set[int]:
        """The server processes at the other end: what they notify comes from here."""
        return {int(slot.connection.get_server_pid()) for slot in self._slots if slot.connection and slot.is_live}

    def take(self, request: ConnectionRequest) -> Slot | None:
        """Return an idle connection, or None where `borrow` would have to wait. The ordinary case: it costs little."""
        slot = self._pick(request)
        if slot is None or not slot.is_live:
            return None
        slot.is_busy = True
        return slot

    async def borrow(self, request: ConnectionRequest) -> Slot:
        """Return a live connection, for one statement or transaction. Call `put_back` with it, whatever happens."""
        while True:
            slot = self._pick(request)
            if slot is None:
                slot = await self._turn(request)
            slot.is_busy = True
            if slot.is_live:
                return slot
            try:
                await self._open(slot)
            except ConnectionsUsedUp as error:
                self._refused(slot, error)
                has_others = any(one is not slot and (one.is_live or one.is_busy) for one in self._slots)
                self.put_back(slot)
                if not has_others or request.only is not None:
                    raise
            except BaseException:
                self.put_back(slot)
                raise
            else:
                return slot

    def put_back(self, slot: Slot) -> None:
        """Hand the connection to the next lane that waits."""
        slot.is_busy = False
        slot.idle_since = asyncio.get_running_loop().time()
        if slot.is_leaving:
            self._part(slot)
        if self._waiting:
            self._serve()

    def drop(self, slot: Slot) -> None:
        """Close a connection at once, without a message to the server: its state is unknown."""
        connection = self._emptied(slot)
        if connection is not None:
            # The event loop that it belongs to may be closed.
            with contextlib.suppress(RuntimeError):
                connection.terminate()

    def bind_to_event_loop(self) -> None:
        """Drop the connections of another event loop, or of the parent of a fork, without using them."""
        here = (os.getpid(), asyncio.get_running_loop())
        if self.home == here:
            return
        for slot in self._slots:
            if self.home is not None and self.home[0] == here[0]:
                self.drop(slot)
            elif slot.connection is not None:
                _left_by_parent.append(slot.connection)
        self._slots = [Slot() for _ in self._slots]
        self._waiting, self._tasks, self._retiring = [], set(), None
        self._grow_at = self._open_at = self._heartbeat_due_at = 0.0
        self._heartbeat_here = asyncio.Event()
        self.breaks += 1
        self.home = here

    async def close(self) -> None:
        """Close every connection, gracefully if that is quick, else at once."""
        self.bind_to_event_loop()
        if self._retiring is not None:
            self._retiring.cancel()
            self._retiring = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for slot in self._slots:
                    if slot.is_busy:
                        await self._turn(ConnectionRequest(only=slot))
                    self._part(slot)
                    slot.is_busy = False
                await asyncio.gather(*self._tasks, return_exceptions=True)
        for slot in self._slots:
            self.drop(slot)
        self.breaks += 1

    def heartbeats(self) -> Connector:
        """Return how heartbeats connect: from threads of their own, and before the lanes."""
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
        if self.home is not None and self.home[0] == os.getpid():
            with contextlib.suppress(RuntimeError):  # that event loop is closed
                self.home[1].call_soon_threadsafe(function)

    def _heartbeat_connected(self) -> None:
        self._open_at = self._heartbeat_due_at = 0.0
        self._heartbeat_here.set()

    def _heartbeat_refused(self) -> None:
        """Give the heartbeat the next connection, here and in other processes: without it nothing may be leased."""
        self._open_at = asyncio.get_running_loop().time() + HEARTBEAT_TURN_S
        self._spawn(self._yield_to_heartbeat())

    async def _yield_to_heartbeat(self) -> None:
        if self._ask_for_room is not None and any(slot.is_live for slot in self._slots):
            with contextlib.suppress(EverpollError):
                await self._ask_for_room()
        for slot in self._extra() or [slot for slot in self._slots if slot.is_live]:
            self.leave(slot)

    def make_room(self) -> None:
        """Give up all connections but one: the server refuses one that another process needs."""
        self._grow_at = asyncio.get_running_loop().time() + ROOM_S * (0.5 + self._rng.random())
        for slot in self._extra():
            self.leave(slot)

    def _pick(self, request: ConnectionRequest) -> Slot | None:
        if request.only is not None:
            return None if request.only.is_busy else request.only
        home = self._slots[min(request.home, self.size - 1)]
        if home.is_live and not home.is_busy and not (request.is_slow and home.on_drop is not None):
            return home
        idle = [slot for slot in (home, *self._slots) if not slot.is_busy]
        may_grow = self._may_grow(request)
        if request.opens and may_grow and not home.is_busy:
            return home
        if request.is_slow and any(slot.on_drop is None and (slot.is_live or may_grow) for slot in self._slots):
            idle = [slot for slot in idle if slot.on_drop is None]
        live = next((slot for slot in idle if slot.is_live), None)
        return live or (next(iter(idle), None) if may_grow else None)

    def _may_grow(self, request: ConnectionRequest) -> bool:
        if not any(slot.is_live or slot.is_busy for slot in self._slots):
            return True
        # A slow statement waits for no heartbeat: it would hold up the one connection that there is.
        return asyncio.get_running_loop().time() >= max(
            self._grow_at, 0.0 if request.is_slow else self._heartbeat_due_at
        )

    async def _turn(self, request: ConnectionRequest) -> Slot:
        """Wait in line; what is handed over counts as busy."""
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
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
            if not turn.done() and (slot := self._pick(request)) is not None:
                slot.is_busy = True
                turn.set_result(slot)

    async def _open(self, slot: Slot) -> None:
        event_loop = asyncio.get_running_loop()
        self._emptied(slot)
        if (wait_s := self._open_at - event_loop.time()) > 0:
            await asyncio.sleep(wait_s)
        slot.connection = await self.connector.connect()
        if all(one.is_live for one in self._slots):
            self._refusals = 0
        if self._retiring is None and self._extra():
            self._retiring = event_loop.call_later(IDLE_S, self._retire)

    def _refused(self, slot: Slot, error: ConnectionsUsedUp) -> None:
        self._refusals += 1
        self._grow_at = asyncio.get_running_loop().time() + GROW_AGAIN.delay(self._refusals, self._rng)
        count = sum(one is not slot and one.is_live for one in self._slots)
        if count and not self._has_warned:
            self._has_warned = True
            logger.warning("%s: this process works with %d beside its heartbeat, and says so once", error, count)

    def _extra(self) -> list[Slot]:
        """Return every connection but one: the listening one, else the most recently used one."""
        live = [slot for slot in self._slots if slot.is_live]
        live.sort(key=lambda slot: (slot.on_drop is not None, slot.is_busy, slot.idle_since))
        return live[:-1]

    def _retire(self) -> None:
        event_loop = asyncio.get_running_loop()
        for slot in self._extra():
            if not slot.is_busy and event_loop.time() - slot.idle_since >= IDLE_S:
                self._part(slot)
        extra = self._extra()
        since = min((slot.idle_since for slot in extra if not slot.is_busy), default=event_loop.time())
        self._retiring = event_loop.call_at(since + IDLE_S, self._retire) if extra else None

    def leave(self, slot: Slot) -> None:
        """Close its connection now, or when what is under way has ended."""
        slot.is_leaving = slot.is_busy
        if not slot.is_busy:
            self._part(slot)

    def _emptied(self, slot: Slot) -> Connection | None:
        """Take the connection out of its slot. One that is closed already broke, whichever part notices that first."""
        connection = slot.emptied()
        if connection is not None and connection.is_closed():
            self.breaks += 1
        return connection

    def _part(self, slot: Slot) -> None:
        connection = self._emptied(slot)
        if connection is not None:
            self._spawn(part(connection))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="everpoll-connections")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
