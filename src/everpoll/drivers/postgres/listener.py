"""Listener: LISTEN on one of the store's connections, with a proof that it works; opened again when it breaks.

    connecting ──▶ proving ──▶ listening ──silence──▶ proving …
        ▲            │            │
        └── backoff ─┴── broken ──┘   then every waiter is woken at once: it may have missed a notification

Promises: `has_push` is true only after a notification to this process itself has arrived. An idle listener sends one
every PROVE_S, which detects a connection that is broken and does not report it.

Behind a transaction pooler a LISTEN would stay in a server session that other clients use next. So a connection listens
only if no other client uses its server session: it has the session that was announced when it connected, or, if a
pooler announces another number, no other connection gets the same session and ours always gets the same one. While the
database is away, it raises nothing, and tries again for ever.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable

from everpoll.drivers.postgres import faults
from everpoll.drivers.postgres.connections import Connections, PooledConnection
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
"""How often a session is compared with that of another connection before it counts as not shared. The first comparison
detects a pooler that assigns sessions in turn, or the most recently used one."""
UNLISTEN_TRIES = 10
NO_NOTIFICATIONS = Backoff("5s", factor=3, cap="10m", jitter=0.2)
"""The waits if notifications do not arrive although the connection works: a pooler is the reason, and rarely goes."""


class Listener:
    """Wakes all parts of this process that were added; one connection serves all."""

    def __init__(
        self, connections: Connections, notifier: Lane, channel: str, on_reconnect: Callable[[], None] = lambda: None
    ) -> None:
        """`on_reconnect` is called in the event loop when the server was away and is back, while any part listens."""
        self._connections = connections
        self._on_reconnect = on_reconnect
        self._connector = connections.connector
        self._channel = channel
        self._notifier = notifier
        self._push = PushTask(self._listen, "everpoll-listener")
        self._rng = random.Random()  # noqa: S311 - jitter needs no secrecy
        self._warnings = RepeatedWarnings(logger, "listening for notifications", event_loop_time)
        self._connector.reach.subscribe(lambda: self._push.from_thread(self._is_back))

    @property
    def has_push(self) -> bool:
        """True while notifications arrive."""
        return self._push.has_push

    async def add(self, on_wake: OnWake) -> None:
        """Wake this part, too; return once it is known whether notifications arrive."""
        await self._push.add(on_wake)

    async def remove(self, on_wake: OnWake) -> None:
        """Stop waking this part; after the last one, the connection stops listening."""
        await self._push.remove(on_wake)

    async def close(self) -> None:
        """Stop listening for every part of this process."""
        await self._push.close()

    def wake(self, *, cancel: bool = False, due_s: float = 0.0) -> None:
        """Wake all parts of this process, which need no notification of its own changes."""
        self._push.wake(Wake(cancel, due_s))

    def _is_back(self) -> None:
        """Wake the parts that wait for their next try: the server was away and is back."""
        self._on_reconnect()
        self.wake()

    async def ask_for_room(self) -> None:
        """Tell the other processes that this one has no connection for its heartbeat."""
        await self._notifier.row(ASK, self._channel, ROOM)

    async def _listen(self) -> None:
        failures = unproven = 0
        while True:
            connection = ListeningConnection(self._connections, self._channel, self._heard, self._notifier)
            try:
                with contextlib.closing(connection):
                    if await connection.open():
                        if self._push.confirm():
                            self._on_reconnect()
                            self.wake(cancel=True)
                        failures = unproven = 0
                        self._warnings.works()
                        await connection.listen()
                self._push.fail()
                unproven += 1
                wait_s = NO_NOTIFICATIONS.delay(unproven, self._rng)
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
        # This process wakes its parts directly after its own changes, before the notification comes.
        if pid in self._connections.pids:
            return
        if payload == ROOM:
            self._connections.make_room()
        elif payload in {WAKE, CANCEL}:
            self.wake(cancel=payload == CANCEL)


class ListeningConnection:
    """One connection that listens, and also serves lanes."""

    def __init__(
        self, connections: Connections, channel: str, heard: Callable[[int, str], None], notifier: Lane
    ) -> None:
        self._connections = connections
        # If there are two connections, not the callers' one: notifications do not delay their answers.
        self._lane = Lane(connections, opens=True)
        self._pooled: PooledConnection | None = None
        self._connection: Connection = None
        self._channel = channel
        self._heard = heard
        self._notifier = notifier
        # A channel for the proof that only this process reads.
        self._proof = f"everpoll_{secrets.token_hex(8)}"
        self._proven = asyncio.Event()
        self._broken = asyncio.Event()
        self._heard_something = False
        self.was_dropped = False

    async def open(self) -> bool:
        """Begin to listen; return whether notifications arrive."""
        await self._connections.heartbeat_is_here()
        session = await self._lane.call(self._compare_session)
        self._pooled = self._lane.pin_connection()
        self._pooled.on_drop = self._dropped
        async with asyncio.timeout(ANSWER_S * 2):
            if session != self._connection.get_server_pid() and await self._is_shared(session):
                self._pooled.on_drop = None
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
            # Any notification proves that the connection works.
            if not self._heard_something and not await self._prove():
                raise StoreUnavailable("a notification to ourselves did not come back")

    def close(self) -> None:
        """Close the connection: only that ends the LISTEN of its session for certain."""
        if (
            self._pooled is not None
            and self._pooled.on_drop is not None
            and self._pooled.connection is self._connection
        ):
            self._pooled.on_drop = None
            self._connections.retire(self._pooled)

    async def _compare_session(self, connection: Connection) -> int:
        self._connection = connection
        return int(await connection.fetchval(SESSION))

    async def _is_shared(self, session: int) -> bool:
        """Return True if a pooler shares our server session with other clients: compares it with another connection."""
        other = Lane(self._connections, is_slow=True)  # slow: it does not take the connection that will listen
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
        """End the LISTEN: notifications do not arrive, and another client may use the session."""
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
                await self._notifier.row(PROVE, self._proof)
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
