"""One HTTP exchange: what adapters ask of a client, and one that needs nothing but the standard library.

`Fetch` is a callable, so that any client serves in a few lines; it follows no redirect, for the adapters judge those
themselves. `ThreadFetch` is the default: `http.client` in daemon threads, one connection an exchange. Chosen over
aiohttp because watches belong to the core install; whoever makes hundreds of looks a second hands in a client that
keeps its connections.

Promises of `ThreadFetch`: one exchange ends within its timeout, however slowly the other side drips, and reads at most
`max_bytes`; when it is canceled its connection is closed, and its thread ends. Whatever the network does wrong is an
`OSError`. Never reads proxies, cookies or passwords from the
environment.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
import string
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from everpoll.engine.threads import DaemonThreads
from everpoll.policy import Duration, human, seconds
from everpoll.version import __version__
from everpoll.watches.adapters.addresses import Refused, shown

MAX_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_UNREAD: Any = object()
_OWN_HEADERS = {"Accept-Encoding": "identity", "Connection": "close"}


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Response:
    """What came back: `Response(200, {"Retry-After": "5"}, b"{}")`; header names are kept in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    """What was asked, after redirects: relative locations start from here."""
    received_at: float
    """Epoch seconds, for dates in headers: judging reads no clock."""
    _json: Any = field(compare=False)

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        url: str = "",
        received_at: float | None = None,
    ) -> None:
        lowered = {name.lower(): value for name, value in (headers or {}).items()}
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "headers", lowered)
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "received_at", time.time() if received_at is None else received_at)
        object.__setattr__(self, "_json", _UNREAD)

    def __repr__(self) -> str:
        return f"<Response {self.status} of {len(self.body)} bytes from {shown(self.url)}>"

    def json(self) -> Any:
        """The body as JSON; None where it is empty or none. Read once: a judge asks several times."""
        if self._json is _UNREAD:
            try:
                read = msgspec.json.decode(self.body.removeprefix(_BOM))
            except (ValueError, RecursionError):
                read = None
            object.__setattr__(self, "_json", read)
        return self._json

    def fields(self) -> dict[str, Any]:
        """The body as a JSON object; an empty one where it is anything else."""
        body = self.json()
        return body if isinstance(body, dict) else {}


class Fetch(Protocol):
    """Ask once, follow nothing; raise an `OSError` (`TimeoutError`, `ConnectionError`) where no answer came."""

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """The answer, whatever its status."""
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
        exchange = _Exchange(method, url, {"User-Agent": f"everpoll/{__version__}", **headers}, body, self._max_bytes)
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                run = asyncio.get_running_loop().run_in_executor
                return await run(self._threads, exchange.run, self._timeout_s, self._context)
        except TimeoutError:
            if not limit.expired():
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
def default_fetch() -> Fetch:
    """The client that all adapters share which were given none."""
    return ThreadFetch()


@dataclass(slots=True, repr=False)
class _Exchange:
    """One request in its thread. `abort` may come at any moment, from the event loop's. Not shown: it has secrets."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    max_bytes: int
    is_aborted: bool = False
    connection: http.client.HTTPConnection | None = field(default=None)

    def run(self, timeout_s: float, tls: Callable[[], ssl.SSLContext]) -> Response:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            self.connection = http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls())
        else:
            self.connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            return self._answer(self.connection, quote(target, safe=string.punctuation))
        except http.client.HTTPException as error:
            raise ConnectionError(f"{shown(self.url)} broke off, or speaks no HTTP: {type(error).__name__}") from None
        except OSError:
            # Before ValueError: a certificate that is not trusted is both.
            raise
        except (ValueError, AttributeError) as error:
            # What http.client says when its socket is closed under its hands.
            if self.is_aborted:
                raise ConnectionAbortedError(f"{shown(self.url)} was given up") from None
            raise ConnectionError(f"{shown(self.url)} cannot be asked: {type(error).__name__}") from None
        finally:
            self.connection.close()

    def _answer(self, connection: http.client.HTTPConnection, target: str) -> Response:
        connection.connect()
        if self.is_aborted:
            raise ConnectionAbortedError(f"{shown(self.url)} was given up")
        connection.request(self.method, target, self.body, {**_OWN_HEADERS, **self.headers})
        with connection.getresponse() as answer:
            # One byte more than allowed tells a body that is too long from one that just fits.
            body = answer.read(self.max_bytes + 1)
            if len(body) > self.max_bytes:
                raise Refused(f"{shown(self.url)} answered with more than {self.max_bytes} bytes")
            # http.client says so by itself only when it is asked for everything.
            if answer.length:
                raise http.client.IncompleteRead(body, answer.length)
            headers: dict[str, str] = {}
            for name, value in answer.getheaders():
                headers.setdefault(name.lower(), value)
            return Response(answer.status, headers, body, url=self.url)

    def abort(self) -> None:
        """Wake the thread out of whatever it waits for; after its end this does nothing."""
        self.is_aborted = True
        sock = None if self.connection is None else self.connection.sock
        if sock is not None:
            with contextlib.suppress(OSError, ValueError):
                # The plain socket's own: that of TLS would first drop what the other thread is reading with.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
