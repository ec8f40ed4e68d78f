"""Shutdown signals: tell a mounted app that its server ends.

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
        """Start listening; outside the main thread, where Python has no signals, do nothing."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        for number in WATCHED:
            before = signal.getsignal(number)
            # Only if the server has a handler of its own: else the default ends the process at once.
            if callable(before) and before is not signal.default_int_handler:
                self._before[number] = before
                signal.signal(number, self._received)

    def end(self) -> None:
        """Restore the previous handlers, unless another part has set its own since."""
        for number, before in self._before.items():
            # This is another thread, or the server has set its own handler: leave it.
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
