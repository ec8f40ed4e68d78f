"""A file that is heard: what a store and an adopted table have in common whose writer notices every commit to its file.

Promises: a listener is called in the thread of its own event loop. A file is tried by each part for itself.
"""

import asyncio

from everpoll.drivers.sqlite.bell import Bell, Listener
from everpoll.drivers.sqlite.writer import Writer
from everpoll.drivers.wake import OnWake


class HeardFile:
    """The listeners of one user of a file, and its writer while it is open."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._listeners: list[Listener] = []
        self._writer: Writer | None = None

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        listener = Listener(asyncio.get_running_loop(), on_wake)
        self._listeners.append(listener)
        self._bell.add(listener)
        self._tell_writer()

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        self._silence([one for one in self._listeners if one.on_wake == on_wake])
        self._tell_writer()

    def _tell_writer(self) -> None:
        """Whether a listener wants to hear of other programs."""
        if self._writer is not None:
            self._writer.listen(bool(self._listeners))

    def _silence(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            self._listeners.remove(listener)
            self._bell.remove(listener)

    async def back_off(self, delay_s: float) -> None:
        """See the contract. A file is tried by each part for itself: that costs next to nothing."""
        await asyncio.sleep(delay_s)

    def hand_over(self) -> None:
        """See the contract."""
        if self._writer is not None:
            self._writer.hand_over()
