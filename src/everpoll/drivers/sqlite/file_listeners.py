"""The listeners of a database file in this process: they are called when a task in it may have become due.

Promises: a wake reaches every listener of every store of this process on the same file, in the thread of the listener's
event loop. Wakes that come faster than a listener runs are merged. Never: keeps a listener whose loop is closed.
"""

import asyncio
import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from everpoll.drivers.wake import OnWake, Wake


class Listener:
    """One `on_wake`, and whether a call of it is scheduled. Create it in the thread of its event loop."""

    def __init__(self, event_loop: asyncio.AbstractEventLoop, on_wake: OnWake) -> None:
        self.event_loop = event_loop
        self.on_wake = on_wake
        self.is_over = False
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._is_scheduled = False
        self._wake: Wake | None = None

    def wake(self, wake: Wake) -> None:
        """Call `on_wake` soon. Raises RuntimeError if its event loop is closed."""
        with self._lock:
            before = self._wake or wake
            self._wake = Wake(before.cancel or wake.cancel, min(before.due_s, wake.due_s))
            was_scheduled, self._is_scheduled = self._is_scheduled, True
        if was_scheduled:
            return
        if threading.get_ident() == self._thread:
            self.event_loop.call_soon(self._call_on_wake)
        else:
            self.event_loop.call_soon_threadsafe(self._call_on_wake)

    def _call_on_wake(self) -> None:
        with self._lock:
            wake, self._wake, self._is_scheduled = self._wake, None, False
        if not self.is_over and wake is not None:
            self.on_wake(wake)


class FileListeners:
    """All listeners of one file."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> None:
        """Add a listener."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Stop calling this listener."""
        listener.is_over = True
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

    def wake(self, wake: Wake) -> None:
        """Wake all listeners, from any thread."""
        for listener in self._listeners:
            try:
                listener.wake(wake)
            except RuntimeError:
                self.remove(listener)


_listeners_by_file: WeakValueDictionary[str, FileListeners] = WeakValueDictionary()
_lock = threading.Lock()


def listeners_of(path: Path) -> FileListeners:
    """Return the listeners of this file in this process."""
    with _lock:
        return _listeners_by_file.setdefault(os.path.realpath(path), FileListeners())
