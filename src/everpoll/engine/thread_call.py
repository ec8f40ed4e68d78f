"""ThreadCall: one call of a plain function in a thread, which can be withdrawn before it begins and left behind after.

    withdraw()                                  A thread cannot be canceled. What can be known is whether the call
waiting ──▶ withdrawn (never begins)            has begun: one that waits for a free thread can still be withdrawn,
   │                                            and one that runs reports when it is over. A call that runs for too
   └──────▶ running ──▶ over                    long is left behind: its pool replaces the thread.
"""

import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from everpoll.engine.threads import DaemonThreads


class _Stage(Enum):
    WAITING = auto()
    RUNNING = auto()
    OVER = auto()
    WITHDRAWN = auto()


class ThreadCall:
    """Submit it to the pool in the place of the function."""

    __slots__ = ("_callbacks", "_function", "_lock", "_stage", "_thread", "_threads")

    def __init__(self, function: Callable[[], Any], threads: DaemonThreads) -> None:
        self._function = function
        self._threads = threads
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stage = _Stage.WAITING
        self._callbacks: list[Callable[[], None]] = []

    def __call__(self) -> Any:
        """Call the function, unless it was withdrawn."""
        with self._lock:
            if self._stage is _Stage.WITHDRAWN:
                return None
            self._stage = _Stage.RUNNING
            self._thread = threading.current_thread()
        try:
            return self._function()
        finally:
            with self._lock:
                self._stage = _Stage.OVER
            for callback in self._callbacks:
                callback()

    @property
    def has_begun(self) -> bool:
        """Whether a thread has taken it on."""
        return self._stage in (_Stage.RUNNING, _Stage.OVER)

    def withdraw(self) -> bool:
        """Return True if the function does not run: it is over, or has not begun and now never will."""
        with self._lock:
            if self._stage is _Stage.WAITING:
                self._stage = _Stage.WITHDRAWN
            return self._stage is not _Stage.RUNNING

    def leave_behind(self) -> bool:
        """Have the pool replace the thread while the function runs in it; False if the function does not run."""
        with self._lock:
            # Under the lock, so that the thread cannot have gone on to another call.
            if self._stage is not _Stage.RUNNING or self._thread is None:
                return False
            self._threads.leave_behind(self._thread)
            return True

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back once it is over: from its thread, or at once."""
        with self._lock:
            if self._stage is _Stage.RUNNING:
                self._callbacks.append(callback)
                return
        callback()
