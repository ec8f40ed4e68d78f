"""A file that notifies of its changes: its writer, and the listeners of one store or one adopted table.

Promises: a listener is called in the thread of its own event loop. The writer checks for commits of other programs only
while there are listeners.
"""

import asyncio

from everpoll.drivers.sqlite.file_listeners import FileListeners, Listener
from everpoll.drivers.sqlite.writer import Writer
from everpoll.drivers.wake import OnWake


class NotifyingFile:
    """The listeners of a file, and its writer while it is open."""

    def __init__(self, file_listeners: FileListeners) -> None:
        self.file_listeners = file_listeners
        self._listeners: list[Listener] = []
        self.writer: Writer | None = None

    def start(self, writer: Writer) -> None:
        """Start this writer; it checks for commits of other programs if there are listeners."""
        self.writer = writer
        writer.start()
        writer.listen(bool(self._listeners))

    def listen(self, on_wake: OnWake) -> None:
        """Call `on_wake` in this event loop whenever a writer of this machine has changed something."""
        listener = Listener(asyncio.get_running_loop(), on_wake)
        self._listeners.append(listener)
        self.file_listeners.add(listener)
        if self.writer is not None:
            self.writer.listen(True)

    def unlisten(self, on_wake: OnWake) -> None:
        """Stop calling it."""
        self._remove([one for one in self._listeners if one.on_wake == on_wake])
        if self.writer is not None:
            self.writer.listen(bool(self._listeners))

    def remove_listeners(self) -> None:
        """Forget all listeners."""
        self._remove(list(self._listeners))

    def _remove(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            self._listeners.remove(listener)
            self.file_listeners.remove(listener)

    def yield_to_thread(self) -> None:
        """Pause for a moment, so that the writer's thread can go on."""
        if self.writer is not None:
            self.writer.yield_to_thread()
