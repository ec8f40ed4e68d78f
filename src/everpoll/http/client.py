"""The client of this room: redirects within their rules, over the exchange that fits the request.

    Request ──▶ hop ──▶ exchange ──▶ Answer, or a redirect: the next hop

Promises: one deadline for all hops; every hop goes through the guard; credentials stay at the origin; nothing is
retried, but for a request that a kept connection lost before a byte of its answer came.
"""

import asyncio
import base64
import os
from collections.abc import Mapping

from everpoll.http.contract import Answer, Request
from everpoll.http.environment import resolved
from everpoll.http.exchange import CONNECTION_AGE_S, Exchange
from everpoll.http.lean_connection import Unfamiliar
from everpoll.http.lean_exchange import LeanExchange
from everpoll.http.lean_pool import max_idle
from everpoll.http.redirects import FOLLOWED, READS, Chain, Hop
from everpoll.http.urls import target_of
from everpoll.policy import number


class HttpClient:
    """Sends requests. One client serves any number of event loops, and closes its connections with each of them.

    `connection_age_s` is how long a kept connection is used, `proxy` the URL of a proxy for all requests, and
    `environment` where `${NAME}` in headers is looked up; None: headers are sent as they are written.
    `lean=False` sends everything with aiohttp.
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
        """Ask, and return the answer; raise `NotReached` where none came, `NotAsked` where this process could not."""
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
                except Unfamiliar:
                    answer = await self._fully().exchange(request, hop, began, deadline)
            if answer.status not in FOLLOWED:
                return answer
            chain = chain or Chain(request, hop)
            if not chain.advance(answer.status, answer.headers, answer.address):
                return answer
            hop = chain.hop

    async def close(self) -> None:
        """Close the connections of this event loop, within a second. Repeatable; `send` opens new ones."""
        for exchange in (self._lean, self._full):
            if exchange is not None:
                await exchange.close()

    def _fully(self) -> Exchange:
        if self._full is None:
            # aiohttp takes 150 ms to import, which a process that makes plain looks only need not wait for.
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
