"""LISTEN on one of the store's connections, proven to work, and opened again whenever it breaks.

    connecting ──▶ proving ──▶ listening ──silence──▶ proving …
        ▲            │            │
        └── backoff ─┴── broken ──┘   after which every waiter is woken at once: something may have been missed

Promises: `has_push` is true only after a notification to ourselves has arrived. An idle listener asks for one every
PROVE_S, which finds out a connection that looks alive and is dead.

Behind a transaction pooler a LISTEN would stay in a server session that other clients use next. So a connection listens
only if its server session is its own: it is the session announced when connecting, or, where a pooler announces
one of its own making, no other connection meets it and none of ours is dealt another.
Never raises for a database that is away; never gives up.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable

from everpoll.drivers.postgres import faults
from everpoll.drivers.postgres.connections import Connections, Slot
from everpoll.drivers.postgres.connector import Connection
from everpoll.drivers.postgres.lane import Lane
from everpoll.drivers.push import PushTask
from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.drivers.wake import OnWake, Wake
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.policy import Backoff, human

logger = logging.getLogger("everpoll.stores")

# The payloads of everpoll's own notifications; others are ignored.
WAKE, CANCEL, ROOM = "", "c", "r"

PROVE_S = 30.0
ANSWER_S = 2.0
RETRY = Backoff("50ms", cap="5s", jitter=0.2)
PROVE = "select pg_notify($1, '')"
ASK = "select pg_notify($1, $2)"
SESSION = "select pg_backend_pid()"
COMPARISONS = 4
"""How often a session is compared with that of another connection before it counts as our own. A pooler that deals
sessions by turns, or the most recently used one, is found out by the first."""
UNLISTEN_TRIES = 10
NO_NOTIFICATIONS = Backoff("5s", factor=3, cap="10m", jitter=0.2)
"""Where notifications do not arrive although the connection works, a pooler stands between: that rarely changes."""


class Listener:
    """Wakes every part of this process that wants to know; one connection serves all."""

    def __init__(
        self, connections: Connections, teller: Lane, channel: str, on_reconnect: Callable[[], None] = lambda: None
    ) -> None:
        """`on_reconnect` is called in the event loop, while any part listens, when the server was away and is back."""
        self._connections = connections
        self._on_reconnect = on_reconnect
        self._connector = connections.connector
        self._channel = channel
        self._teller = teller
        self._push = PushTask(self._listen, "everpoll-listener")
        self._rng = random.Random()  # noqa: S311 - jitter needs no secrecy
        self._warnings = RepeatedWarnings(logger, "listening for notifications", event_loop_time)
        self._connector.reach.subscribe(lambda: self._push.from_thread(self._is_back))

    @property
    def has_push(self) -> bool:
        """Whether notifications arrive at present."""
        return self._push.has_push

    async def add(self, on_wake: OnWake) -> None:
        """Wake this one too; return once it is known whether notifications arrive."""
        await self._push.add(on_wake)

    async def remove(self, on_wake: OnWake) -> None:
        """Stop waking it; without any left, the connection stops listening."""
        await self._push.remove(on_wake)

    async def close(self) -> None:
        """Stop listening for every part of this process."""
        await self._push.close()

    def wake(self, *, cancel: bool = False, due_s: float = 0.0) -> None:
        """Wake all that wait here; from this process no notification is needed."""
        self._push.wake(Wake(cancel, due_s))

    def _is_back(self) -> None:
        """Wake what waits for its next try: the server was away and is back."""
        self._on_reconnect()
        self.wake()

    async def ask_for_room(self) -> None:
        """Tell the other processes that this one has no connection for its heartbeat."""
        await self._teller.row(ASK, self._channel, ROOM)

    async def _listen(self) -> None:
        failures = deaf = 0
        while True:
            connection = ListeningConnection(self._connections, self._channel, self._heard, self._teller)
            try:
                with contextlib.closing(connection):
                    if await connection.open():
                        if self._push.confirm():
                            self._on_reconnect()
                            self.wake(cancel=True)
                        failures = deaf = 0
                        self._warnings.works()
                        await connection.listen()
                self._push.fail()
                deaf += 1
                wait_s = NO_NOTIFICATIONS.delay(deaf, self._rng)
                logger.warning(
                    "notifications of Postgres do not arrive, as behind a transaction pooler: polling instead; "
                    "next try in %s",
                    human(wait_s),
                )
                await asyncio.sleep(wait_s)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next connection may work
                self._push.fail()
                failures += 1
                wait_s = RETRY.delay(failures, self._rng)
                self._log_break(error, wait_s, was_dropped=connection.was_dropped)
                await self._connector.reach.wait(wait_s)

    def _log_break(self, error: Exception, wait_s: float, *, was_dropped: bool) -> None:
        known = isinstance(error, EverpollError) or faults.while_asking(error, self._connector.address) is not None
        said = self._connector.address.masked(str(error) or type(error).__name__)
        message = "listening for notifications broke off: %s; again in %s"
        if was_dropped:
            logger.debug(message, said, human(wait_s))
            return
        level = logging.WARNING if known else logging.ERROR
        self._warnings.failed(error, message, said, human(wait_s), level=level)

    def _heard(self, pid: int, payload: str) -> None:
        # Changes by this store's own connections were reported here directly, and earlier.
        if pid in self._connections.pids:
            return
        if payload == ROOM:
            self._connections.make_room()
        elif payload in {WAKE, CANCEL}:
            self.wake(cancel=payload == CANCEL)


class ListeningConnection:
    """One connection that listens, and serves lanes beside that."""

    def __init__(self, connections: Connections, channel: str, heard: Callable[[int, str], None], teller: Lane) -> None:
        self._connections = connections
        # Not the connection that callers use: where there are two, each gets its answers without the other's news.
        self._lane = Lane(connections, opens=True)
        self._slot: Slot | None = None
        self._connection: Connection = None
        self._channel = channel
        self._heard = heard
        self._teller = teller
        # A channel of our own for the proof: no other process has to read it.
        self._proof = f"everpoll_{secrets.token_hex(8)}"
        self._proven = asyncio.Event()
        self._broken = asyncio.Event()
        self._heard_something = False
        self.was_dropped = False

    async def open(self) -> bool:
        """Begin to listen; return whether notifications arrive."""
        await self._connections.heartbeat_is_here()
        session = await self._lane.call(self._compare_session)
        self._slot = self._lane.pin_connection()
        self._slot.on_drop = self._dropped
        async with asyncio.timeout(ANSWER_S * 2):
            if session != self._connection.get_server_pid() and await self._is_shared(session):
                self._slot.on_drop = None
                return False
            listening = await self._lane.call(self._begin)
        if await self._prove():
            return True
        await self._unlisten(listening)
        return False

    async def listen(self) -> None:
        """Listen until the connection breaks, which is raised as an error."""
        while True:
            self._heard_something = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROVE_S):
                    await self._broken.wait()
            if self._broken.is_set():
                raise StoreUnavailable("the connection was closed")
            # Whatever came is proof enough.
            if not self._heard_something and not await self._prove():
                raise StoreUnavailable("a notification to ourselves did not come back")

    def close(self) -> None:
        """Close the connection: nothing else makes a session stop listening for certain."""
        if self._slot is not None and self._slot.on_drop is not None and self._slot.connection is self._connection:
            self._slot.on_drop = None
            self._connections.leave(self._slot)

    async def _compare_session(self, connection: Connection) -> int:
        self._connection = connection
        return int(await connection.fetchval(SESSION))

    async def _is_shared(self, session: int) -> bool:
        """Return whether a pooler shares our server session with others. One connection alone cannot tell."""
        other = Lane(self._connections, is_slow=True)  # keeps off the connection that is to listen
        for _ in range(COMPARISONS):
            if await other.value(SESSION) == session:
                return True
            if await self._lane.value(SESSION) != session:
                return True
        return False

    async def _begin(self, connection: Connection) -> int:
        if connection is not self._connection:
            raise StoreUnavailable("the connection was closed")
        connection.add_termination_listener(lambda _: self._broken.set())
        async with connection.transaction():
            await connection.add_listener(self._channel, self._on_notification)
            await connection.add_listener(self._proof, lambda *_: self._proven.set())
            return int(await connection.fetchval(SESSION))

    async def _unlisten(self, session: int) -> None:
        """Withdraw the LISTEN: notifications do not arrive, and it may be in a session of another client."""
        forget = f'unlisten "{self._channel}"; unlisten "{self._proof}"'

        async def leave(connection: Connection) -> int:
            async with connection.transaction():
                await connection.execute(forget)
                return int(await connection.fetchval(SESSION))

        with contextlib.suppress(EverpollError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                for _ in range(UNLISTEN_TRIES):
                    if await self._lane.call(leave) == session:
                        break

    async def _prove(self) -> bool:
        self._proven.clear()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._teller.row(PROVE, self._proof)
                await self._proven.wait()
        except TimeoutError:
            return False
        return True

    def _dropped(self) -> None:
        self.was_dropped = True
        self._broken.set()

    def _on_notification(self, _: Connection, pid: int, __: str, payload: str) -> None:
        self._heard_something = True
        self._heard(pid, payload)
