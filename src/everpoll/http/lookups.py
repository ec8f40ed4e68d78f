"""Name look-ups: all addresses of a host, from the system's resolver, in daemon threads.

Promises: at most THREADS look-ups at a time. A look-up that hangs keeps neither the event loop nor the interpreter from
ending (with `loop.getaddrinfo` it would, because those threads are joined). An address in a URL is not looked up.
Nothing is cached here: the operating system has a cache, and knows for how long.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from everpoll.http.address_ranges import IpAddress, literal
from everpoll.http.contract import Kind, NotAsked, NotReached

THREADS = 128

T = TypeVar("T")


async def addresses_of(host: str, port: int) -> list[IpAddress]:
    """Return every address of a host, in the resolver's order; raise `NotReached` if there is none."""
    found = literal(host)
    if found is not None and "%" not in host:
        is_v4 = found.version == 4
        return [IpAddress(socket.AF_INET, (host, port)) if is_v4 else IpAddress(socket.AF_INET6, (host, port, 0, 0))]
    try:
        return await in_daemon_thread(lambda: _looked_up(host, port))
    except socket.gaierror as error:
        raise NotReached(_lookup_error(host, error), Kind.DNS, error.errno) from None
    except RuntimeError:
        raise NotAsked(f"the name {host} was not looked up: this process cannot start a thread") from None
    except (UnicodeError, ValueError):
        raise NotReached(f"{host[:100]!r} is not a valid host name", Kind.DNS) from None


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a daemon thread. If the caller is canceled, the function ends by itself."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]  # of the function, which did not fail
        else:
            done.set_exception(error)

    def call() -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as raised:  # noqa: BLE001 - belongs to the coroutine that waits
            error = raised
        # If the event loop is closed, no caller waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, result, error)

    _threads.submit(call)
    return await done


class _Threads:
    """Threads that run submitted calls and end when there are none: no idle thread stays, and none is joined."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.begin()

    def begin(self) -> None:
        """Start over, because a forked process has no threads."""
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._running = 0

    def submit(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._running == self._limit:
                return
            self._running += 1
        try:
            threading.Thread(target=self._work, name="everpoll-lookup", daemon=True).start()
        except RuntimeError:
            # No thread can be started now. A running thread takes the call; if there is none, raise.
            with self._lock:
                self._running -= 1
                if self._running or job not in self._jobs:
                    return
                self._jobs.remove(job)
            raise

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running -= 1
                    return
                job = self._jobs.popleft()
            job()


_threads = _Threads(THREADS)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.begin)


def _looked_up(host: str, port: int) -> list[IpAddress]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(IpAddress(family, place) for family, _, _, _, place in found))


def _lookup_error(host: str, error: socket.gaierror) -> str:
    if error.errno == socket.EAI_AGAIN:
        return f"the name {host} cannot be looked up now: no name server answered"
    if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
        return f"the name {host} has no address"
    return f"the name {host} cannot be looked up: {error.strerror}"
