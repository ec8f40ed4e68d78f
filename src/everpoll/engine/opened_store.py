"""The store of one app: opened once, on the event loop that uses it first.

Promises: a second event loop that uses the app gets `NotRunning` at once, even while the first still opens the store.
After a fork, and after an event loop that ended without `close()`, the next event loop opens the store again.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import ClassVar

from everpoll.errors import NotRunning
from everpoll.stores.contract import Store


class OpenedStore:
    """Opens a store on demand. `on_reopened` is called if an earlier event loop has opened it and has ended since."""

    def __init__(self, store: Store, on_reopened: Callable[[], None], *, migrate: bool) -> None:
        self.store = store
        self._migrate = migrate
        self._on_reopened = on_reopened
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._opened_on: asyncio.AbstractEventLoop | None = None
        self._used_by: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self.is_kept = False
        """True while the app runs: then a failure to open the store does not release the app."""

    @property
    def is_open(self) -> bool:
        """Whether some event loop has opened the store and not closed it."""
        return self._opened_on is not None

    @property
    def running_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that uses the app, if it runs in this process."""
        used_by = self._used_by
        return used_by if used_by is not None and self._pid == os.getpid() and used_by.is_running() else None

    async def opened(self) -> Store:
        """Return the store, connected and with its schema up to date."""
        event_loop = asyncio.get_running_loop()
        if self._opened_on is not event_loop:
            await self._open_on(event_loop)
        return self.store

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()
        self._opened_on = None

    def exchange(self, store: Store, opened_on: asyncio.AbstractEventLoop | None = None) -> object:
        """Use another store from now on; return what `exchange` takes to go back to this one."""
        before = (self.store, self._opened_on)
        self.store, self._opened_on = store, opened_on
        return before

    def use_from(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Reserve the app for this event loop; raise `NotRunning` if another one that runs has it."""
        with _Reserving.lock:
            used_by, is_same_process = self._used_by, self._pid == os.getpid()
            if used_by is not None and used_by is not event_loop and is_same_process and used_by.is_running():
                raise NotRunning("this app is in use on another event loop: close it there first, or make another app")
            self._used_by, self._pid = event_loop, os.getpid()

    def release(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Let other event loops use the app."""
        with _Reserving.lock:
            if self._used_by is event_loop:
                self._used_by = None

    async def _open_on(self, event_loop: asyncio.AbstractEventLoop) -> None:
        self.use_from(event_loop)
        # A lock belongs to the event loop on which a task first had to wait for it.
        if self._opening is None or self._opening[0] is not event_loop:
            self._opening = (event_loop, asyncio.Lock())
        async with self._opening[1]:
            if self._opened_on is event_loop:
                return
            # Reserve it again: the task before this one may have failed to open the store, and released the app.
            self.use_from(event_loop)
            if self._opened_on is not None:
                self._on_reopened()
            try:
                await self.store.open(migrate=self._migrate)
            except BaseException:
                if not self.is_kept:
                    self.release(event_loop)
                raise
            self._opened_on = event_loop


class _Reserving:
    """The lock of all apps; a forked child makes a new one, since a thread of the parent may hold the old one."""

    lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def renew(cls) -> None:
        cls.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Reserving.renew)
