"""The ear: LISTEN on a connection of its own, proven to work, made anew for ever.

    connecting ──▶ proving ──▶ listening ──silence──▶ proving …
        ▲            │            │
        └── backoff ─┴── broken ──┘   after which everybody is woken at once: something may have been missed

Promises: `has_push` is what was seen, not what was hoped: a notification to ourselves arrived. It is sent by another
connection: behind a transaction pooler one that notifies itself hears it, and nobody else does. An idle listener asks
once in PROVE_S; one that looks alive and is dead is found out by that.
Never raises for a database that is away; never gives up.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable

from everpoll.drivers.postgres import faults
from everpoll.drivers.postgres.lane import Connection, Dial, Lane, part
from everpoll.drivers.wake import OnWake, Wake
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.policy import Backoff, human

logger = logging.getLogger("everpoll.stores")

# What is said on a channel; anything else is not for us.
WAKE, CANCEL = "", "c"

PROVE_S = 30.0
ANSWER_S = 2.0
RETRY = Backoff("50ms", cap="5s", jitter=0.2)
PROVE = "select pg_notify($1, '')"
DEAF = Backoff("5s", factor=3, cap="10m", jitter=0.2)
"""Where notifications do not arrive although the connection works, a pooler stands between: that rarely changes."""


class Listener:
    """Wakes everybody in this process who wants to know; one connection serves all."""

    def __init__(self, dial: Dial, teller: Lane, own_pids: Callable[[], set[int]], channel: str) -> None:
        self._dial = dial
        self._channel = channel
        self._teller = teller
        self._own_pids = own_pids
        self._wanted: list[OnWake] = []
        self._task: asyncio.Task[None] | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._tried = asyncio.Event()
        self._rng = random.Random()  # noqa: S311 - jitter is no secret
        self.has_push = False

    async def add(self, on_wake: OnWake) -> None:
        """Wake this one too; returns once it is known whether notifications arrive."""
        event_loop = asyncio.get_running_loop()
        if self._event_loop is not event_loop:
            self._wanted, self._task, self._event_loop = [], None, event_loop
        self._wanted.append(on_wake)
        if self._task is None:
            self._tried = asyncio.Event()
            self._task = event_loop.create_task(self._listen(), name="everpoll-listener")
        await self._tried.wait()

    async def remove(self, on_wake: OnWake) -> None:
        """Not any more; the last one takes the connection with it."""
        self._wanted = [one for one in self._wanted if one != on_wake]
        if not self._wanted:
            await self.close()

    async def close(self) -> None:
        """Nobody listens any more."""
        task, self._task = self._task, None
        self._wanted, self.has_push = [], False
        self._tried.set()
        if task is not None and self._event_loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def wake(self, *, cancel: bool = False, due_s: float = 0.0) -> None:
        """Tell everybody here; from this process no notification is needed."""
        if self._event_loop is asyncio.get_running_loop():
            for on_wake in self._wanted:
                self._event_loop.call_soon(on_wake, Wake(cancel, due_s))

    async def _listen(self) -> None:
        failures = deaf = 0
        while True:
            ear = Ear(self._channel, self._heard, self._teller)
            try:
                connection = await self._dial.connect()
                try:
                    if await ear.open(connection):
                        self._proven(anew=self._tried.is_set())
                        failures = deaf = 0
                        await ear.listen()
                    deaf += 1
                    wait_s = DEAF.delay(deaf, self._rng)
                    logger.warning(
                        "notifications of Postgres do not arrive, as behind a transaction pooler: polling instead; "
                        "next try in %s",
                        human(wait_s),
                    )
                finally:
                    self.has_push = False
                    await part(connection)
            except Exception as error:  # whatever it is, the next connection may work
                failures += 1
                wait_s = RETRY.delay(failures, self._rng)
                known = isinstance(error, EverpollError) or faults.while_asking(error, self._dial.address) is not None
                logger.log(
                    logging.WARNING if known else logging.ERROR,
                    "listening for notifications broke off: %s; again in %s",
                    self._dial.address.masked(str(error) or type(error).__name__),
                    human(wait_s),
                    exc_info=not known,
                )
            self._tried.set()
            await asyncio.sleep(wait_s)

    def _proven(self, *, anew: bool) -> None:
        self.has_push = True
        self._tried.set()
        if anew:
            self.wake(cancel=True)

    def _heard(self, pid: int, payload: str) -> None:
        # What this store's own connections told was told here directly, and earlier.
        if payload in {WAKE, CANCEL} and pid not in self._own_pids():
            self.wake(cancel=payload == CANCEL)


class Ear:
    """One connection that listens."""

    def __init__(self, channel: str, heard: Callable[[int, str], None], teller: Lane) -> None:
        self._channel = channel
        self._heard = heard
        self._teller = teller
        # A channel of our own for the proof: no other process has to read it.
        self._proof = f"everpoll_{secrets.token_hex(8)}"
        self._proven = asyncio.Event()
        self._broken = asyncio.Event()
        self._heard_something = False

    async def open(self, connection: Connection) -> bool:
        """Begin; whether notifications arrive."""
        connection.add_termination_listener(lambda _: self._broken.set())
        async with asyncio.timeout(ANSWER_S):
            await connection.add_listener(self._channel, self._told)
            await connection.add_listener(self._proof, lambda *_: self._proven.set())
        return await self._prove()

    async def listen(self) -> None:
        """Until it breaks, which is an error."""
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

    async def _prove(self) -> bool:
        self._proven.clear()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._teller.row(PROVE, self._proof)
                await self._proven.wait()
        except TimeoutError:
            return False
        return True

    def _told(self, _: Connection, pid: int, __: str, payload: str) -> None:
        self._heard_something = True
        self._heard(pid, payload)
