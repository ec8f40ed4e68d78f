"""Notifications to other processes that tasks are due, bundled so that there are few of them.

NOTIFY takes a lock at commit for which all notifying transactions of the whole server queue, so a notification for each
task would limit the throughput of the server. Instead the first statement after a quiet moment carries a notification,
and all statements that follow within the window share one more at its end. A lost notification only delays tasks: every
worker also polls at intervals.
"""

import asyncio
import logging

from everpoll.drivers.postgres.connector import CLOSE_TIMEOUT_S
from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import EverpollError

logger = logging.getLogger("everpoll.stores")

CHANNEL = "everpoll"
WINDOW_S = 0.01
NOTIFY = "select pg_notify('everpoll', '')"


class Notifier:
    """The notifications of one store."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._sent_at = float("-inf")
        self._trailing: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    def carries_notification(self) -> bool:
        """Return whether the next statement should carry a notification; if not, one is sent separately, later."""
        self._bind_to_event_loop()
        now = asyncio.get_running_loop().time()
        if now - self._sent_at >= WINDOW_S:
            self._sent_at = now
            return True
        self._later()
        return False

    def failed(self) -> None:
        """Note that the statement that carried a notification failed."""
        self._sent_at = float("-inf")

    def soon(self) -> None:
        """Send a notification soon: something was committed without one."""
        self._bind_to_event_loop()
        self._later()

    async def close(self) -> None:
        """Send the pending notification now."""
        self._bind_to_event_loop()
        if self._trailing is not None:
            self._trailing.cancel()
            self._send()
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=CLOSE_TIMEOUT_S)
            self._sending.cancel()

    def _later(self) -> None:
        if self._trailing is None:
            event_loop = asyncio.get_running_loop()
            self._trailing = event_loop.call_at(max(event_loop.time(), self._sent_at + WINDOW_S), self._send)

    def _send(self) -> None:
        event_loop = asyncio.get_running_loop()
        self._trailing, self._sent_at = None, event_loop.time()
        self._sending = event_loop.create_task(self._notify(), name="everpoll-notify")

    async def _notify(self) -> None:
        try:
            await self._lane.row(NOTIFY)
        except EverpollError as error:
            logger.debug("could not notify: %s", error)

    def _bind_to_event_loop(self) -> None:
        """Forget timers of another event loop: they ended with it."""
        event_loop = asyncio.get_running_loop()
        if self._event_loop is not event_loop:
            self._event_loop, self._sent_at, self._trailing, self._sending = event_loop, float("-inf"), None, None
