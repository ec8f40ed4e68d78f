"""HttpClient: sends a request by the exchange that fits it, and follows redirects within their rules.

    Request ──▶ hop ──▶ exchange ──▶ Answer, or a redirect: the next hop

Promises: one deadline holds for all hops; the guard checks every hop; credentials stay at the origin; nothing is
retried, except if a reused connection breaks before the first byte of the answer.
"""

import asyncio
import base64
import os
from collections.abc import Mapping

from everpoll.http.contract import Answer, Request
from everpoll.http.environment import resolved
from everpoll.http.exchange import CONNECTION_AGE_S, Exchange
from everpoll.http.lean_connection import NeedsFullExchange
from everpoll.http.lean_exchange import LeanExchange
from everpoll.http.lean_pool import max_idle
from everpoll.http.redirects import FOLLOWED, READS, Chain, Hop
from everpoll.http.urls import target_of
from everpoll.policy import number


class HttpClient:
    """Sends requests. One client serves any number of event loops; an event loop that closes closes its connections.

    `connection_age_s` is how long a connection is reused. `proxy` is the URL of a proxy for all requests. `${NAME}` in
    headers is replaced by the value in `environment`; with None, headers are sent unchanged. `lean=False` sends
    everything by aiohttp.
    """

    def __init__(
        self,
        *,
        connection_age_s: float = CONNECTION_AGE_S,
        proxy: str | None = None,
        environment: Mapping[str, str] | None = os.environ,
        lean: bool = True,
    ) -> None:
        self._age_s = number(connection_age_s, name="connection_age_s", at_least=0, accepted="seconds, 0 or more")
        if proxy is not None:
            target_of(proxy)
        self._proxy = proxy
        self._environment = environment
        self._full: Exchange | None = None
        is_lean = lean and proxy is None
        self._lean = LeanExchange(connection_age_s=self._age_s, max_idle=max_idle()) if is_lean else None

    async def send(self, request: Request) -> Answer:
        """Send a request and return its answer; raise `NotReached` if none came, `NotAsked` if it could not be sent."""
        began = asyncio.get_running_loop().time()
        deadline = began + request.timeout_s
        hop = self._first_hop(request)
        chain = None
        while True:
            if self._lean is None or hop.body is not None or request.method not in READS:
                answer = await self._fully().exchange(request, hop, began, deadline)
            else:
                try:
                    answer = await self._lean.exchange(request, hop, began, deadline)
                except NeedsFullExchange:
                    answer = await self._fully().exchange(request, hop, began, deadline)
            if answer.status not in FOLLOWED:
                return answer
            chain = chain or Chain(request, hop)
            if not chain.advance(answer.status, answer.headers, answer.address):
                return answer
            hop = chain.hop

    async def close(self) -> None:
        """Close the connections of this event loop, within a second. May be repeated; `send` opens new ones."""
        for exchange in (self._lean, self._full):
            if exchange is not None:
                await exchange.close()

    def _fully(self) -> Exchange:
        if self._full is None:
            # aiohttp takes 150 ms to import, and a process that makes only plain looks does not need it.
            from everpoll.http.full_exchange import FullExchange  # noqa: PLC0415

            self._full = FullExchange(proxy=self._proxy, connection_age_s=self._age_s)
        return self._full

    def _first_hop(self, request: Request) -> Hop:
        target, headers = target_of(request.url), request.headers
        if headers and self._environment is not None:
            headers = resolved(headers, self._environment)
        if target.credentials and not any(name.lower() == "authorization" for name in headers):
            basic = base64.b64encode(target.credentials.encode()).decode()
            headers = {**headers, "Authorization": f"Basic {basic}"}
        return Hop(target, headers, request.body, request.reach, request.tls)
