"""Requests to PostgREST: bounded in time and size, with the key, and with errors that say what they mean.

Promises: an answer within TIMEOUT_S or an error. At most ANSWER_LIMIT bytes are read. A token that is refused is
renewed once, and the request repeated: PostgREST looks at the token before it does anything. `Retry-After` is kept:
until then nothing is sent. Redirects are not followed, so the key goes nowhere else.
Never: a key in an error, a log or a repr.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Self

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.policy import human
from everpoll.tables.supabase import faults
from everpoll.tables.supabase.address import Address, proxy_for
from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.filters import Query, encoded
from everpoll.tables.supabase.token import Key

TIMEOUT_S = 10.0
ANSWER_LIMIT = 64 * 1024 * 1024
RETRY_AFTER_LIMIT_S = 300.0
"""A server that wants more than this is asked again all the same: a typing error must not stop a worker for a day."""
CONNECTIONS = 8
KEEP_ALIVE_S = 15.0
"""Below what servers and proxies keep an idle connection for: a PATCH on one that is being closed is a lost answer."""


class Request(Struct, frozen=True, kw_only=True):
    """What is asked of PostgREST."""

    method: str
    path: str
    """Below the address, quoted already: `/execution_jobs`."""
    query: Query = ()
    body: Any = None
    headers: Mapping[str, str] = {}

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        return f"{self.path}?{encoded(self.query)}" if self.query else self.path


class Link(Struct):
    """What every connection to one project shares, whichever thread it belongs to."""

    address: Address
    key: Key
    clock: DatabaseClock
    not_before: float = 0.0
    """By `time.monotonic`: the server asked to be left alone until then."""


class Http:
    """Connections of one event loop to one PostgREST server."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._renewing = asyncio.Lock()
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._proxy = proxy_for(link.address.rest)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of every connection. Repeatable."""
        await self._session.close()

    async def rows(self, request: Request) -> list[dict[str, Any]]:
        """The rows of the answer; no row at all is no error (PGRST116, A3)."""
        try:
            answer = await self.answer(request)
        except faults.Refused as error:
            if error.code == faults.NO_ROW:
                return []
            raise
        if not isinstance(answer, list) or not all(isinstance(row, dict) for row in answer):
            raise StoreUnavailable(f"PostgREST answered {request.method} {request.path} with something else than rows")
        return answer

    async def answer(self, request: Request) -> Any:
        """The JSON of the answer."""
        wait_s = self._link.not_before - time.monotonic()
        if wait_s > 0:
            raise StoreUnavailable(f"PostgREST asked to be left alone for another {human(wait_s)}")
        key = self._link.key
        token = await key.current()
        try:
            return await self._sent(request, token)
        except faults.TokenRefused as error:
            async with self._renewing:
                fresh = await key.renewed(token)
            if fresh == token:
                raise StoreUnavailable(f"{error}; a fresh one is needed: token=… takes a function, too") from None
        return await self._sent(request, fresh)

    async def _sent(self, request: Request, token: str) -> Any:
        headers = {"apikey": token, "Authorization": f"Bearer {token}", "Accept": "application/json", **request.headers}
        body = None
        if request.body is not None:
            body = msgspec.json.encode(request.body)
            headers["Content-Type"] = "application/json"
        masked = self._link.key.masked
        try:
            async with self._session.request(
                request.method,
                URL(self._link.address.rest + request.target, encoded=True),
                data=body,
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
            ) as response:
                content = await _content(response)
                self._link.clock.saw_date(response.headers.get("Date"))
                if response.status >= 300:
                    self._keep_away(response)
                    raise faults.of_answer(response.status, content)
        except EverpollError as error:
            error.args = (masked(str(error)),)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            told = faults.of_transport(error, TIMEOUT_S)
            raise type(told)(masked(str(told))) from None
        try:
            return msgspec.json.decode(content) if content else None
        except (msgspec.DecodeError, ValueError):
            raise StoreUnavailable(
                f"{request.method} {request.path} was answered with something that is not JSON: is this PostgREST?"
            ) from None

    def _keep_away(self, response: aiohttp.ClientResponse) -> None:
        asked = response.headers.get("Retry-After", "")
        # Written as a date it comes from nobody in this line; PostgREST, Kong and Cloudflare write seconds.
        if response.status in {429, 503} and asked.isdecimal():
            wait_s = min(float(asked), RETRY_AFTER_LIMIT_S)
            self._link.not_before = max(self._link.not_before, time.monotonic() + wait_s)


async def _content(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > ANSWER_LIMIT:
            raise faults.TooLarge(f"the answer is larger than {ANSWER_LIMIT // 2**20} MiB")
    return bytes(content)
