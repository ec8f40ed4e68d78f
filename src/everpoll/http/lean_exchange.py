"""The lean exchange for plain looks: GET and HEAD without a body, directly on asyncio and httptools.

It takes a quarter of the time of aiohttp (docs/decisions/0025), with the same guard, limits, deadline and answers. For
anything else (protocol switches, other transfer codings, answers that a strict parser refuses) it raises
`NeedsFullExchange`, and the full exchange sends the request again: a read may be sent twice.
"""

import asyncio
import random
import ssl
from collections.abc import Callable, Hashable

from everpoll.http.address_ranges import IpAddress
from everpoll.http.connecting import connect
from everpoll.http.contract import Answer, NotAsked, NotReached, Request
from everpoll.http.exchange import CONNECTION_AGE_S, headers_to_send
from everpoll.http.faults import (
    closed_early,
    error_of_os,
    head_too_large,
    is_ours,
    lookup_timed_out,
    place_of,
    timed_out,
)
from everpoll.http.guard import allow_name, allowed
from everpoll.http.lean_connection import ConnectionEnded, HeadTooLarge, LeanConnection
from everpoll.http.lean_pool import LeanPool
from everpoll.http.lookups import addresses_of
from everpoll.http.per_loop import PerLoop
from everpoll.http.redirects import Hop
from everpoll.http.tls import context_of, failed_handshake, server_name
from everpoll.http.urls import KEPT_URL_CHARS, Target

_MAX_HEADS = 16_384


class LeanExchange:
    """Exchanges of plain looks, for any number of event loops."""

    def __init__(
        self,
        *,
        connection_age_s: float = CONNECTION_AGE_S,
        max_idle: int,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._age_s = connection_age_s
        self._draw = draw
        self._pools = PerLoop(lambda: LeanPool(max_idle), LeanPool.close)
        self._heads: dict[Hashable, bytes] = {}

    async def exchange(self, request: Request, hop: Hop, began: float, deadline: float) -> Answer:
        """Return the answer of one hop; raise `NeedsFullExchange` if the full exchange must send the request."""
        target, loop = hop.target, asyncio.get_running_loop()
        pool = self._pools.of(loop)
        if pool is None:
            pool = await self._pools.open()
        wire = self._head(request, hop)
        key = (target.scheme, target.host, target.port, hop.reach, hop.tls)
        limit, is_head = request.max_body_bytes, request.method == "HEAD"
        kept = None if request.fresh else pool.take(key, loop.time())
        connection = kept or await self._opened(pool, request, hop, deadline)
        while True:
            try:
                await connection.ask(wire, target.shown, is_head=is_head, limit=limit, deadline=deadline)
                break
            except asyncio.CancelledError:
                connection.abort()
                raise
            except (HeadTooLarge, ConnectionEnded, TimeoutError) as error:
                if connection is not kept or not isinstance(error, ConnectionEnded) or not error.is_stale:
                    raise await _fault(error, connection, request, hop) from None
            connection = await self._opened(pool, request, hop, deadline)
        return self._answer(pool, key, connection, request, target, began)

    async def close(self) -> None:
        """Close the connections of the running event loop. Repeatable."""
        await self._pools.close()

    def _answer(
        self,
        pool: LeanPool,
        key: Hashable,
        connection: LeanConnection,
        request: Request,
        target: Target,
        began: float,
    ) -> Answer:
        """Return the answer that the connection has read; return the connection to the pool if it can be reused."""
        now, body = pool.loop.time(), connection.body
        assert body is not None, "the answer is complete"
        is_kept = connection.is_kept and connection.is_open and not request.fresh and now < connection.use_until
        try:
            content = body.content()
        except NotReached:
            is_kept = False
            raise
        finally:
            if is_kept:
                pool.give(key, connection)
            else:
                connection.abort()
        return Answer(
            connection.status,
            connection.headers,
            content,
            target.url,
            connection.address,
            now - began,
            connection.certificate_expires_at,
            body.is_truncated,
            body.encoding,
        )

    def _head(self, request: Request, hop: Hop) -> bytes:
        """Return the bytes of the request's head. They are the same for each look at a service."""
        target, headers = hop.target, hop.headers
        key = (
            (request.method, target.url, request.fresh, tuple(headers.items()))
            if headers
            else (
                request.method,
                target.url,
                request.fresh,
            )
        )
        found = self._heads.get(key)
        if found is not None:
            return found
        sent = headers_to_send(hop)
        host = next((sent.pop(name) for name in tuple(sent) if name.lower() == "host"), target.host_header)
        lines = [f"{request.method} {target.path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in sent.items()]
        lines += ["Connection: close"] if request.fresh else []
        found = "\r\n".join([*lines, "", ""]).encode("latin-1")
        if len(found) <= KEPT_URL_CHARS * 2:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[key] = found
        return found

    async def _opened(self, pool: LeanPool, request: Request, hop: Hop, deadline: float) -> LeanConnection:
        """Open a new connection to an address that the guard allows."""
        target, is_looking_up = hop.target, True
        addresses: list[IpAddress] = []
        allow_name(target, hop.reach)
        try:
            async with asyncio.timeout_at(deadline):
                addresses = allowed(target, hop.reach, await addresses_of(target.host, target.port))
                is_looking_up = False
                return await self._connected(pool, hop, addresses, deadline)
        except (NotReached, NotAsked):
            raise
        except ssl.SSLError as error:
            raise await failed_handshake(
                error, place_of(target), server_name(hop.tls, target.host), addresses
            ) from None
        except TimeoutError as error:
            if error.errno is not None:
                raise error_of_os(error, place_of(target)) from None
            if is_looking_up:
                raise lookup_timed_out(target, request.timeout_s) from None
            raise timed_out(target, request.timeout_s) from None
        except OSError as error:
            raise error_of_os(error, place_of(target)) from None

    async def _connected(self, pool: LeanPool, hop: Hop, addresses: list[IpAddress], deadline: float) -> LeanConnection:
        loop, target = pool.loop, hop.target
        context = await context_of(hop.tls) if target.is_secure else None
        try:
            sock, _ = await connect(addresses)
        except OSError as error:
            if not is_ours(error) or not len(pool):
                raise
            # Idle connections use up the file descriptors: close them, so that no service looks down because of them.
            pool.clear()
            await asyncio.sleep(0)
            sock, _ = await connect(addresses)
        # The age varies, so that connections that were opened together are not replaced together.
        use_until = loop.time() + self._age_s * (0.75 + self._draw() / 4)
        # From here on the socket belongs to the transport, which closes it in any case.
        _, connection = await loop.create_connection(
            lambda: LeanConnection(loop, use_until),
            sock=sock,
            ssl=context,
            server_hostname=server_name(hop.tls, target.host) if target.is_secure else None,
            # The caller has the deadline; this limit only has to be later.
            ssl_handshake_timeout=max(deadline - loop.time(), 0) + 60 if target.is_secure else None,
        )
        return connection


async def _fault(error: Exception, connection: LeanConnection, request: Request, hop: Hop) -> NotReached | NotAsked:
    """Translate the error that ended a connection."""
    target = hop.target
    if isinstance(error, TimeoutError):
        return timed_out(target, request.timeout_s, received=connection.received)
    if isinstance(error, ConnectionEnded):
        if isinstance(error.cause, ssl.SSLError):
            return await failed_handshake(error.cause, place_of(target), server_name(hop.tls, target.host), [])
        return closed_early(target, received=error.received)
    return head_too_large(target)
