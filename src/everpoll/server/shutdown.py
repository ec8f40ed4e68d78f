"""Shutdown signals: how a mounted app hears that its server ends.

A server waits for open answers before it ends, and tells a mounted app nothing before that: a stream would hold it up
until its own timeout. So while streams are open, SIGTERM and SIGINT also end them. The handler that was there is called
as before, with the same arguments.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

WATCHED = (signal.SIGTERM, signal.SIGINT)


class ShutdownSignals:
    """Calls `on_shutdown` in the event loop when a signal comes."""

    def __init__(self, on_shutdown: Callable[[], None]) -> None:
        self._on_shutdown = on_shutdown
        self._event_loop = asyncio.get_running_loop()
        self._before: dict[int, Any] = {}

    def begin(self) -> None:
        """Listen from now on; does nothing outside the main thread, where Python has no signals."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        for number in WATCHED:
            before = signal.getsignal(number)
            # Only where a server listens itself: the default would end the process at once anyhow.
            if callable(before) and before is not signal.default_int_handler:
                self._before[number] = before
                signal.signal(number, self._received)

    def end(self) -> None:
        """Give the signals back, unless another part has taken them since."""
        for number, before in self._before.items():
            # Another thread, or a handler of the server's own by now: theirs to decide.
            with contextlib.suppress(ValueError):
                if signal.getsignal(number) == self._received:
                    signal.signal(number, before)
        self._before.clear()

    def _received(self, number: int, stack: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):
            self._event_loop.call_soon_threadsafe(self._on_shutdown)
        before = self._before.get(number)
        if callable(before):
            before(number, stack)
