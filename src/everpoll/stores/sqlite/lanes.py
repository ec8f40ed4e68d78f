"""The threads of one store: a writer and a reader, from `open` to `close`.

Promises: `open` and `close` may be repeated, and called by several tasks at once. After a fork the child opens threads
of its own, and never touches those of the parent.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TypeVar

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.file_listeners import FileListeners, listeners_of
from everpoll.drivers.sqlite.lane import Lane, Op
from everpoll.drivers.sqlite.notifying_file import NotifyingFile
from everpoll.drivers.sqlite.writer import Writer
from everpoll.errors import NotRunning
from everpoll.stores.sqlite import rescue
from everpoll.stores.sqlite.schema import check, prepare

T = TypeVar("T")

# The lanes of the parent, in the child of a fork. They are never used and never closed: SQLite forbids both.
_left_by_parent: list[tuple[Writer | None, Lane | None]] = []


class Lanes(NotifyingFile):
    """The writer and the reader of one store."""

    def __init__(self, address: SqliteAddress, patience_s: float) -> None:
        super().__init__(listeners_of(address.path))
        self._address = address
        self._patience_s = patience_s
        self._reader: Lane | None = None
        self._pid = os.getpid()
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def open(self, *, migrate: bool) -> None:
        """Bring the schema up to date, or check it, and start both threads."""
        self._forget_parent()
        async with self._opening_here():
            await asyncio.to_thread(prepare, self._address, self._patience_s, migrate=migrate)
            if self.writer is None:
                name = self._address.path.name
                writer = Writer(
                    f"everpoll-writer {name}",
                    self._address,
                    self._patience_s,
                    check,
                    self.file_listeners,
                    rescue.cancels,
                )
                self._reader = Lane(f"everpoll-reader {name}", self._address, self._patience_s, check)
                self._reader.start()
                self.start(writer)

    def _forget_parent(self) -> None:
        """Forget the threads after a fork: the child has none of them, and their connections are the parent's."""
        if self._pid != os.getpid():
            _left_by_parent.append((self.writer, self._reader))
            self.writer = self._reader = None
            self._listeners.clear()
            self.file_listeners = FileListeners()
            self._pid = os.getpid()

    def _opening_here(self) -> asyncio.Lock:
        """Return the lock of this event loop: a lock belongs to the one in which a caller first waited for it."""
        event_loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not event_loop:
            self._opening = (event_loop, asyncio.Lock())
        return self._opening[1]

    async def close(self) -> None:
        """Stop both threads and forget the listeners."""
        async with self._opening_here():
            writer, self.writer = self.writer, None
            reader, self._reader = self._reader, None
            self.remove_listeners()
            if writer is not None and reader is not None:
                # One after the other: only the last connection that closes deletes the -wal file.
                await reader.stop()
                await writer.stop()

    def write(self, op: Op[T]) -> "asyncio.Future[T]":
        """Run the operation in the writer, in one transaction with others."""
        if self.writer is None or self._pid != os.getpid():
            raise NotRunning(f"the store {self._address.path} is closed: call open() first")
        return self.writer.submit(op)

    def read(self, run: Callable[[Connection], T]) -> "asyncio.Future[T]":
        """Run the function in the reader, in one snapshot."""
        if self._reader is None or self._pid != os.getpid():
            raise NotRunning(f"the store {self._address.path} is closed: call open() first")
        return self._reader.submit(Op(run))
