"""Reachability: once one part of a process reaches the database again, the other parts try again at once.

    reached ──a connection fails──▶ away ──a statement is answered──▶ reached: sleepers and subscribers are woken

Promises: an outage is over for all parts of a process as soon as it is over for one of them. Only the end of an outage
wakes them: a statement that fails for another reason keeps its backoff. Wake-ups are at least WAKE_GAP_S apart, so two
parts that fail in turn do not wake each other without end. Safe to use from any thread.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

WAKE_GAP_S = 0.2

Sleeper = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Reachability:
    """Whether one database can be reached, as far as the parts of one process know."""

    def __init__(self) -> None:
        self.is_away = False
        self._lock = threading.Lock()
        self._sleepers: list[Sleeper] = []
        self._subscribers: list[Callable[[], None]] = []
        self._woke_at = float("-inf")

    def lost(self) -> None:
        """Note that a connection failed, or could not be made."""
        self.is_away = True

    def reached(self) -> None:
        """Note that a statement was answered."""
        with self._lock:
            was_away, self.is_away = self.is_away, False
            now = time.monotonic()
            if not was_away or now - self._woke_at < WAKE_GAP_S:
                return
            self._woke_at = now
            sleepers, self._sleepers = self._sleepers, []
            subscribers = list(self._subscribers)
        for event_loop, sleeper in sleepers:
            with contextlib.suppress(RuntimeError):  # that event loop is closed
                event_loop.call_soon_threadsafe(_wake, sleeper)
        for subscriber in subscribers:
            subscriber()

    async def wait(self, delay_s: float) -> None:
        """Sleep that long, or until the database is reached again."""
        event_loop = asyncio.get_running_loop()
        sleeper: Sleeper = (event_loop, event_loop.create_future())
        with self._lock:
            self._sleepers.append(sleeper)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await sleeper[1]
        finally:
            with self._lock:
                self._sleepers = [one for one in self._sleepers if one is not sleeper]

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call this when the database is reached again, in the thread of the part that reached it."""
        with self._lock:
            self._subscribers.append(subscriber)


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)
