"""A call that a thread makes for a loop: known to have begun, to be over, or never to begin.

    withdraw()                                  A thread cannot be canceled. What can be known is whether it has
waiting ──▶ withdrawn (never begins)            begun: a call that waits for a free thread can still be taken
   │                                            back, and one that runs tells when it is over.
   └──────▶ running ──▶ over
"""

import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Any


class _Stage(Enum):
    WAITING = auto()
    RUNNING = auto()
    OVER = auto()
    WITHDRAWN = auto()


class ThreadCall:
    """To be submitted to an executor in the place of the function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._stage = _Stage.WAITING
        self._callbacks: list[Callable[[], None]] = []

    def __call__(self) -> Any:
        """Call the function, unless it was withdrawn."""
        with self._lock:
            if self._stage is _Stage.WITHDRAWN:
                return None
            self._stage = _Stage.RUNNING
        try:
            return self._function()
        finally:
            with self._lock:
                self._stage = _Stage.OVER
            for callback in self._callbacks:
                callback()

    def withdraw(self) -> bool:
        """True if the function does not run: it is over, or has not begun and now never will."""
        with self._lock:
            if self._stage is _Stage.WAITING:
                self._stage = _Stage.WITHDRAWN
            return self._stage is not _Stage.RUNNING

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back once it is over: from its thread, or at once."""
        with self._lock:
            if self._stage is _Stage.RUNNING:
                self._callbacks.append(callback)
                return
        callback()
