"""One HTTP exchange: the client contract of adapters, and their default client.

`Fetch` is a callable, so that any HTTP client can be used in a few lines. It follows no redirect: the adapters do.
`HttpFetch` is the default, on the client of `everpoll.http`.

Promises of `HttpFetch`: one exchange ends within its timeout, however many addresses the host has and however slowly it
sends. It reads at most `max_bytes`. If it is canceled, its connection is closed. Reads reuse connections; a request
with an effect opens a new one. Every failure of the network is an `OSError`. It never reads proxies, cookies or
passwords from the environment.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache, partial
from typing import Protocol, runtime_checkable

from everpoll.http.client import HttpClient
from everpoll.http.contract import MAX_BODY_BYTES, Answer, Kind, NotAsked, NotReached, Reach
from everpoll.http.contract import Request as HttpRequest
from everpoll.http.redirects import READS
from everpoll.http.urls import shown
from everpoll.policy import Duration, human, seconds
from everpoll.watches.adapters.addresses import Refused
from everpoll.watches.adapters.response import Response
from everpoll.watches.adapters.url_origins import UrlOrigin, led_inside, led_to_metadata, reach_of

MAX_BYTES = MAX_BODY_BYTES


class Fetch(Protocol):
    """Sends one request and follows no redirect; raises an `OSError` (`TimeoutError`, …) if no answer comes."""

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """Send a request and return the answer, whatever its status."""
        ...


@runtime_checkable
class Guarded(Protocol):
    """A client that resolves names itself, and can refuse private addresses."""

    def led_by(self, home: str, peer: str = "") -> Fetch:
        """Return the client for a URL to which `home` led: it asks private addresses only if `home` is private itself.

        `peer` is the address that answered for `home`; if it is given, it decides. The client never asks addresses of
        cloud metadata.
        """
        ...


class TimedOut(NotReached, TimeoutError):
    """The remote did not answer in time."""


class Unreached(NotReached, ConnectionError):
    """No answer came: connection refused or broken off, unknown host, untrusted certificate, not HTTP."""


class HttpFetch:
    """`HttpFetch(timeout="30s")`: the client of `everpoll.http`, for one exchange at a time."""

    def __init__(
        self, *, timeout: Duration = "30s", max_bytes: int = MAX_BYTES, tls: ssl.SSLContext | None = None
    ) -> None:
        self._timeout_s = seconds(timeout, name="timeout", positive=True)
        self._max_bytes = max_bytes
        self._tls = tls
        # Headers are sent as they are written: `${…}` of a user's token is not a reference.
        self._client = HttpClient(environment=None)

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """Send a request and return the answer, whatever its status."""
        return await self._ask(None, method, url, headers=headers, body=body)

    def led_by(self, home: str, peer: str = "") -> Fetch:
        """Return the client for a URL to which `home` led: it asks private addresses only if `home` is private."""
        return partial(self._ask, UrlOrigin(home, peer))

    async def _ask(
        self, origin: UrlOrigin | None, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        reach = Reach.NAMED if origin is None else await self._reach(origin, url)
        request = HttpRequest(
            url,
            method,
            headers,
            body,
            timeout_s=max(deadline - loop.time(), 0.001),
            max_body_bytes=self._max_bytes,
            fresh=method not in READS,
            follow_redirects=False,
            reach=reach,
            tls=self._tls,
        )
        try:
            return _response(await self._client.send(request), url, self._max_bytes)
        except NotReached as error:
            raise _fault(error, origin, url, reach) from None
        except NotAsked as error:
            raise OSError(str(error)) from None

    async def _reach(self, origin: UrlOrigin, url: str) -> Reach:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await reach_of(origin, url)
        except TimeoutError:
            what = f"the name of {shown(origin.url)} was not looked up within {human(self._timeout_s)}"
            raise TimedOut(what, Kind.TIMED_OUT) from None


@cache
def default_fetch() -> HttpFetch:
    """Return the client that all adapters without one of their own share."""
    return HttpFetch()


def too_large(url: str, max_bytes: int) -> Refused:
    """Return the error for a body beyond its limit: it would be the same the next time."""
    return Refused(f"{shown(url)} answered with more than {max_bytes} bytes")


def _response(answer: Answer, url: str, max_bytes: int) -> Response:
    if answer.is_truncated and answer.status < 400:
        raise too_large(url, max_bytes)
    body = answer.body
    if answer.encoding:
        if 200 <= answer.status < 300:
            raise NotReached(f"{shown(url)} answered in {answer.encoding!r}, which was not asked for", Kind.PROTOCOL)
        # The status is enough; a body in an unknown encoding cannot be read.
        body = b""
    # Of several headers with one name, the first counts.
    headers = {name: answer.headers.first(name) for name in answer.headers}
    return Response(answer.status, headers, body, url=url, peer=answer.address)


def _fault(error: NotReached, origin: UrlOrigin | None, url: str, reach: Reach) -> Exception:
    """Translate the error for adapters: `Refused` if another try would end the same way."""
    match error.kind:
        case Kind.TIMED_OUT:
            return TimedOut(error.reason, error.kind, error.errno)
        case Kind.TOO_LARGE:
            return Refused(error.reason)
        case Kind.ADDRESS if origin is not None and reach in (Reach.PUBLIC, Reach.PUBLIC_PART):
            return led_inside(origin.url, url)
        case Kind.ADDRESS:
            return led_to_metadata(url)
        case _:
            return Unreached(error.reason, error.kind, error.errno)
