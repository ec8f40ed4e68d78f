"""The full exchange: supports everything, by aiohttp within the limits of this package.

Promises: it connects only to addresses that the guard allowed. A pool of connections serves one reach only, so a
connection that was opened for the user is never used for a redirect. One deadline holds from the name look-up to the
last byte. Bodies are decompressed here and not by aiohttp, because of their limit. A connection that is too old is
closed after its answer. It never reads proxies, cookies or passwords from the environment.
"""

import asyncio
import random
import socket
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from everpoll.http.address_ranges import IpAddress
from everpoll.http.certificates import expiry_of
from everpoll.http.contract import Answer, NotAsked, NotReached, Reach, Request
from everpoll.http.exchange import CONNECTION_AGE_S, MAX_FIELD_BYTES, MAX_HEAD_BYTES, headers_to_send
from everpoll.http.faults import (
    closed_early,
    error_of_os,
    head_too_large,
    lookup_timed_out,
    not_http,
    place_of,
    timed_out,
)
from everpoll.http.guard import allow_name, allowed
from everpoll.http.headers import Headers
from everpoll.http.lookups import addresses_of
from everpoll.http.per_loop import PerLoop
from everpoll.http.redirects import Hop
from everpoll.http.tls import context_of, failed_handshake, server_name
from everpoll.http.unpacking import Body

KEEP_ALIVE_S = 15.0
"""Shorter than servers and proxies keep idle connections: a POST on a connection that they close has no answer."""
_CLOSE_S = 1.0
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class FullExchange:
    """Exchanges on aiohttp, for any number of event loops."""

    def __init__(
        self,
        *,
        proxy: str | None = None,
        connection_age_s: float = CONNECTION_AGE_S,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._proxy = proxy
        self._age_s = connection_age_s
        self._draw = draw
        self._sessions = PerLoop(_Sessions, _Sessions.close)

    async def exchange(self, request: Request, hop: Hop, began: float, deadline: float) -> Answer:
        """Return the answer of one hop."""
        sessions = await self._sessions.open()
        attempt = _Attempt(hop, sessions, self._age_s, self._draw)
        token = _current.set(attempt)
        try:
            async with asyncio.timeout_at(deadline):
                return await self._ask(request, attempt, began)
        except TimeoutError:
            if attempt.is_looking_up:
                raise attempt.with_sent_mark(lookup_timed_out(hop.target, request.timeout_s)) from None
            raise attempt.with_sent_mark(timed_out(hop.target, request.timeout_s, received=attempt.received)) from None
        except NotReached as error:
            raise attempt.with_sent_mark(error) from None
        finally:
            _current.reset(token)

    async def close(self) -> None:
        """Close the connections of the running event loop. Repeatable."""
        await self._sessions.close()

    async def _ask(self, request: Request, attempt: "_Attempt", began: float) -> Answer:
        hop, target = attempt.hop, attempt.hop.target
        allow_name(target, hop.reach)
        if target.is_literal:
            # aiohttp calls no resolver for an address.
            attempt.addresses = allowed(target, hop.reach, await addresses_of(target.host, target.port))
        context = await context_of(hop.tls) if target.is_secure else True
        try:
            async with attempt.sessions.of(hop.reach, request.fresh).request(
                request.method,
                URL(target.url, encoded=True),
                headers=headers_to_send(hop),
                data=hop.body,
                allow_redirects=False,
                ssl=context,
                server_hostname=server_name(hop.tls, target.host) if target.is_secure else None,
                proxy=self._proxy,
            ) as response:
                return await self._read(request, response, attempt, began)
        except aiohttp.ClientError as error:
            raise await self._fault(error, attempt) from None
        except ssl.SSLError as error:
            raise await self._tls(error, attempt) from None
        except (NotReached, NotAsked, TimeoutError):
            raise
        except OSError as error:
            raise error_of_os(error, place_of(target)) from None

    async def _read(
        self, request: Request, response: aiohttp.ClientResponse, attempt: "_Attempt", began: float
    ) -> Answer:
        target = attempt.hop.target
        if sum(len(name) + len(value) for name, value in response.raw_headers) > MAX_HEAD_BYTES:
            raise head_too_large(target)
        headers = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers)
        coding = headers.get("content-encoding", "") if request.method != "HEAD" else ""
        body = Body(target.shown, response.status, coding, request.max_body_bytes)
        attempt.received = 0
        if response.content_length is not None and request.method != "HEAD" and response.status not in (204, 304):
            body.expect(response.content_length)
        async for chunk in response.content.iter_any():
            attempt.received += len(chunk)
            if not body.add(chunk):
                response.close()
                break
        return Answer(
            status=response.status,
            headers=headers,
            body=body.content(),
            url=target.url,
            address=attempt.address if self._proxy is None else "",
            latency_s=asyncio.get_running_loop().time() - began,
            certificate_expires_at=attempt.certificate_expires_at if self._proxy is None else None,
            is_truncated=body.is_truncated,
            encoding=body.encoding,
        )

    async def _fault(self, error: aiohttp.ClientError, attempt: "_Attempt") -> NotReached | NotAsked:
        """Translate an error of aiohttp, without its text: it may contain the URL."""
        target, place = attempt.hop.target, place_of(attempt.hop.target)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            cause = error.certificate_error
            return await self._tls(cause, attempt) if isinstance(cause, ssl.SSLError) else not_http(target)
        if isinstance(error, aiohttp.ClientConnectorError):
            cause = error.os_error
            return await self._tls(cause, attempt) if isinstance(cause, ssl.SSLError) else error_of_os(cause, place)
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return closed_early(target)
        if isinstance(error, aiohttp.ClientPayloadError):
            return closed_early(target, received=attempt.received or 0)
        if isinstance(error, aiohttp.ClientOSError):
            is_early = attempt.received is None
            return error_of_os(error, place) if is_early else closed_early(target, received=attempt.received)
        is_long = isinstance(error.__cause__, aiohttp.http_exceptions.LineTooLong)
        return head_too_large(target) if is_long else not_http(target)

    async def _tls(self, error: ssl.SSLError, attempt: "_Attempt") -> NotReached:
        hop = attempt.hop
        name = server_name(hop.tls, hop.target.host)
        return await failed_handshake(error, place_of(hop.target), name, attempt.addresses)


class _Attempt:
    """The state of one exchange, which aiohttp's parts fill in."""

    def __init__(self, hop: Hop, sessions: "_Sessions", age_s: float, draw: Callable[[], float]) -> None:
        self.hop = hop
        self.sessions = sessions
        self.addresses: list[IpAddress] = []
        self.is_looking_up = False
        self.is_connected = False
        self.address = ""
        self.certificate_expires_at: float | None = None
        self.received: int | None = None
        self._age_s = age_s
        self._draw = draw

    def with_sent_mark(self, error: NotReached) -> NotReached:
        """Mark in the error whether the remote may have received the request, and return it."""
        error.is_unsent = not self.is_connected
        return error

    def note_connection(self, connection: Any) -> None:
        """Note the connection's address and certificate; close it after the answer if it is too old."""
        transport, protocol = connection.transport, connection.protocol
        if transport is None or protocol is None:
            return
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self.certificate_expires_at = expiry_of(transport.get_extra_info("ssl_object"))
        now = asyncio.get_running_loop().time()
        # The age varies, so that connections that were opened together are not replaced together.
        until = self.sessions.use_until.setdefault(protocol, now + self._age_s * (0.75 + self._draw() / 4))
        if now >= until:
            protocol.force_close()


_current: ContextVar[_Attempt] = ContextVar("everpoll.http.attempt")


class _CheckedResolver(AbstractResolver):
    """Looks names up, and returns the addresses that the guard allows for the current request."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        attempt = _current.get()
        attempt.is_looking_up = True
        found = await addresses_of(host, port)
        attempt.is_looking_up = False
        if host == attempt.hop.target.host:
            found = attempt.addresses = allowed(attempt.hop.target, attempt.hop.reach, found)
        # Any other host is the proxy, which the user named.
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=one.ip, port=port, family=one.family, proto=0, flags=flags)
            for one in found
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class _Connector(aiohttp.TCPConnector):
    """Notes when the current request has a connection: from then on, its bytes may have been sent."""

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - aiohttp's signature
        connection = await super().connect(req, traces, timeout)
        _current.get().is_connected = True
        return connection


class _Response(aiohttp.ClientResponse):
    """Notes the connection of an answer: an answer without a body releases it before it is returned."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        _current.get().note_connection(connection)
        return await super().start(connection)


class _Sessions:
    """The sessions of one event loop: for each reach, one that reuses connections and one that does not."""

    def __init__(self) -> None:
        self._made: dict[tuple[Reach, bool], aiohttp.ClientSession] = {}
        self.use_until: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def of(self, reach: Reach, is_fresh: bool) -> aiohttp.ClientSession:
        found = self._made.get((reach, is_fresh))
        if found is None:
            found = self._made[reach, is_fresh] = _session(is_fresh)
        return found

    async def close(self) -> None:
        made, self._made = self._made, {}
        for session in made.values():
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await session.close()
            except TimeoutError:
                continue


def _session(is_fresh: bool) -> aiohttp.ClientSession:
    # No limit here: waiting for a connection would look like a slow server. Callers limit their requests themselves.
    kept: dict[str, Any] = {"force_close": True} if is_fresh else {"keepalive_timeout": KEEP_ALIVE_S}
    return aiohttp.ClientSession(
        connector=_Connector(resolver=_CheckedResolver(), use_dns_cache=False, limit=0, **kept),
        timeout=_NO_TIMEOUT,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        response_class=_Response,
        max_line_size=MAX_FIELD_BYTES,
        max_field_size=MAX_FIELD_BYTES,
    )
