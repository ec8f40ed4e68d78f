"""One HTTP exchange: what adapters ask of a client, and one that needs nothing but the standard library.

`Fetch` is a callable, so that any client serves in a few lines; it follows no redirect, for the adapters judge those
themselves. `ThreadFetch` is the default: `http.client` in daemon threads, one connection an exchange. Chosen over
aiohttp because watches belong to the core install; whoever makes hundreds of looks a second hands in a client that
keeps its connections.

Promises of `ThreadFetch`: one exchange ends within its timeout, however many addresses a host has and however slowly it
drips, and reads at most `max_bytes`; when it is canceled its connection is closed, its thread ends, and nothing is sent
any more. Whatever the network does wrong is an `OSError`. Never reads proxies, cookies or passwords from the
environment.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Mapping
from functools import cache, partial
from typing import Protocol, runtime_checkable

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput
from everpoll.policy import Duration, human, seconds
from everpoll.version import __version__
from everpoll.watches.adapters.addresses import shown
from everpoll.watches.adapters.exchange import Exchange
from everpoll.watches.adapters.inner_addresses import Leader
from everpoll.watches.adapters.response import Response

MAX_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Fetch(Protocol):
    """Ask once, follow nothing; raise an `OSError` (`TimeoutError`, `ConnectionError`) where no answer came."""

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """The answer, whatever its status."""
        ...


@runtime_checkable
class Guarded(Protocol):
    """A client that sees the addresses behind names, and can keep away from those of the inside."""

    def led_by(self, home: str, peer: str = "") -> Fetch:
        """The same client, for a URL to which `home` led: not inside, unless `home` is inside itself.

        `peer` is the address that answered for `home`, and decides where it is known; metadata is never asked.
        """
        ...


class ThreadFetch:
    """`ThreadFetch(timeout="30s")`: a client on the standard library."""

    def __init__(
        self,
        *,
        timeout: Duration = "30s",
        max_bytes: int = MAX_BYTES,
        tls: ssl.SSLContext | None = None,
        threads: int = 64,
    ) -> None:
        self._timeout_s = seconds(timeout, name="timeout", positive=True)
        self._max_bytes = max_bytes
        self._tls = tls
        self._threads = DaemonThreads(threads, "everpoll-fetch")

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """The answer, whatever its status."""
        return await self._ask(None, method, url, headers=headers, body=body)

    def led_by(self, home: str, peer: str = "") -> Fetch:
        """The same client, for a URL to which `home` led: it connects to nothing inside, unless `home` is there."""
        return partial(self._ask, Leader(home, peer))

    async def _ask(
        self, leader: Leader | None, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        own = {"User-Agent": f"everpoll/{__version__}", **sendable(headers)}
        exchange = Exchange(method, url, own, body, self._max_bytes, leader)
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)

        def count() -> None:
            if not exchange.is_aborted:
                limit.reschedule(loop.time() + self._timeout_s)

        def began() -> None:
            # A loop that is closed has given up already.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(count)

        try:
            async with limit:
                return await loop.run_in_executor(self._threads, exchange.run, self._timeout_s, self._context, began)
        except TimeoutError as error:
            if error.errno is not None and not limit.expired():
                raise
            raise TimeoutError(f"{shown(url)} did not answer within {human(self._timeout_s)}") from None
        finally:
            exchange.abort()

    def _context(self) -> ssl.SSLContext:
        # Loading the certificates takes some 20 ms: once, only where they are needed, and not in the event loop.
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


@cache
def default_fetch() -> ThreadFetch:
    """The client that all adapters share which were given none."""
    return ThreadFetch()


def sendable(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, if HTTP can carry them; what cannot be sent is not repeated: it may be a secret."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name[:40]!r} is no name of a header: write letters, digits and -")
        if not _VALUE.fullmatch(value):
            raise BadInput(f"the header {name} cannot be sent: it has line breaks or letters beyond latin-1 in it")
    return headers
