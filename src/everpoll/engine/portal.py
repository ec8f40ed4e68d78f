"""Portal: an event loop in a thread of its own, for callers without an event loop.

Promises: a call returns or raises; it never waits for a thread that has ended. The thread starts with the first call,
and is a daemon. If the caller is interrupted (Ctrl-C), its call is canceled.
Never: serves a caller that runs in an event loop, which it would block.
"""

import asyncio
import atexit
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from everpoll.errors import NotRunning

T = TypeVar("T")

CHECK_S = 1.0
"""How often a waiting caller checks that the thread is alive."""
CLOSE_S = 2.0


class Portal:
    """One thread with an event loop. `on_close` runs in it before it ends."""

    def __init__(self, name: str, on_close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._name = name
        self._on_close = on_close
        self._lock = threading.Lock()
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        _portals.add(self)

    @property
    def is_of_this_process(self) -> bool:
        """True if this process has made the portal: a fork inherits the object, but not its thread."""
        return self._pid == os.getpid()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine there, and return what it returns."""
        return waited(asyncio.run_coroutine_threadsafe(coroutine, self._started()), self._is_alive)

    def close(self) -> None:
        """End the thread, within two seconds. Repeatable; a later call starts another."""
        with self._lock:
            event_loop, thread = self._event_loop, self._thread
            self._event_loop = self._thread = None
        if event_loop is None or thread is None or not self.is_of_this_process:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._on_close(), event_loop).result(CLOSE_S)
        except (concurrent.futures.TimeoutError, RuntimeError):
            pass
        finally:
            if not event_loop.is_closed():
                event_loop.call_soon_threadsafe(event_loop.stop)
            thread.join(CLOSE_S)

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._event_loop is None or not self._is_alive():
                self._event_loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._event_loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._event_loop


def refuse_in_an_event_loop(instead: str) -> None:
    """Raise `NotRunning` if an event loop runs in this thread: the call would block it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise NotRunning(f"an event loop runs in this thread, and a call of .sync would block it: write {instead}")


def waited(answer: "concurrent.futures.Future[T]", is_alive: Callable[[], bool]) -> T:
    """Return the answer; raise `NotRunning` once it can never come."""
    try:
        while True:
            try:
                return answer.result(CHECK_S)
            except concurrent.futures.TimeoutError:
                # The coroutine's own timeout is one of these, too.
                if answer.done():
                    raise
                if not is_alive():
                    raise NotRunning("the event loop that should have answered has ended: call again") from None
            except concurrent.futures.CancelledError:
                raise NotRunning("the app was closed before the call had ended: call again") from None
    except BaseException:
        answer.cancel()
        raise


def _run(event_loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(event_loop)
    try:
        event_loop.run_forever()
        for task in (left := asyncio.all_tasks(event_loop)):
            task.cancel()
        event_loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        event_loop.close()


_portals: "weakref.WeakSet[Portal]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for portal in list(_portals):
        portal.close()
