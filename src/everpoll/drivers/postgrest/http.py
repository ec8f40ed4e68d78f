"""Requests to PostgREST: bounded in time and size, with the key, and with errors that explain themselves.

Promises: an answer within TIMEOUT_S or an error. It reads at most ANSWER_LIMIT bytes. It renews a refused token once
and repeats the request: PostgREST checks the token before it does anything. It honours `Retry-After`: until then it
sends nothing. It follows no redirects, so the key goes nowhere else.
Never: shows a key in an error, a log or a repr.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec
from msgspec import Struct

from everpoll.drivers.postgrest import faults
from everpoll.drivers.postgrest.address import ProjectAddress, proxy_for
from everpoll.drivers.postgrest.clock import DatabaseClock
from everpoll.drivers.postgrest.filters import Query, encoded
from everpoll.drivers.postgrest.token import Key
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.http import Answer, HttpClient, NotAsked, NotReached
from everpoll.http import Request as HttpRequest
from everpoll.policy import human

Values = Sequence[Any]
"""A row of an answer, in the order of the request's columns."""
CLOCK, ROWS = "now", "rows"
"""The parts of a function's answer: the database's time, and its rows. It is one value and not a set, because PostgREST
cuts sets to its `db-max-rows`: rows would be changed and not reported."""
TIMEOUT_S = 10.0
ANSWER_LIMIT = 64 * 1024 * 1024
RETRY_AFTER_LIMIT_S = 300.0
"""The longest `Retry-After` that counts: a typing error in a server must not stop a worker for a day."""
CONNECTIONS = 8
"""How many requests run at a time; others wait, and their timeout runs."""


class Request(Struct, frozen=True, kw_only=True):
    """One request to PostgREST."""

    method: str
    path: str
    """The path below the address, already quoted: `/execution_jobs`."""
    query: Query = ()
    body: Any = None
    headers: Mapping[str, str] = {}
    names: tuple[str, ...] = ()
    """The columns of the rows in the answer."""
    clock: str | None = None
    """The column into which the database writes its own time by this request."""

    @property
    def target(self) -> str:
        """Path and query as they are sent."""
        return f"{self.path}?{encoded(self.query)}" if self.query else self.path


class Link(Struct):
    """The parts that all connections to one project share, in every thread."""

    address: ProjectAddress
    key: Key
    clock: DatabaseClock
    not_before: float = 0.0
    """The server asked for no requests until this instant, by `time.monotonic`."""


class Http:
    """Connections of one event loop to one PostgREST server."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._renewing = asyncio.Lock()
        self._free = asyncio.Semaphore(CONNECTIONS)
        # Headers are sent as they are: `${…}` in a key is not a reference.
        self._client = HttpClient(environment=None, proxy=proxy_for(link.address.rest))

    @property
    def clock(self) -> DatabaseClock:
        """The database's time, as its answers tell it."""
        return self._link.clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Repeatable."""
        await self._client.close()

    async def rows(self, request: Request) -> list[Values]:
        """Send a request and return the rows of its answer; an answer without rows (PGRST116) gives an empty list."""
        try:
            answer = await self.answer(request)
        except faults.Refused as error:
            if error.code == faults.NO_ROW:
                return []
            raise
        if not isinstance(answer, list) or not all(isinstance(row, dict) for row in answer):
            raise StoreUnavailable(f"PostgREST answered {request.method} {request.path} with something else than rows")
        if request.clock is not None and answer:
            self._link.clock.saw(answer[0][request.clock])
        return [tuple(row[name] for name in request.names) for row in answer]

    async def called(self, request: Request) -> list[Any]:
        """Call a function; note the database's time, and return the rows or keys of its answer."""
        answer: dict[str, Any] = await self.answer(request)
        self._link.clock.saw(answer[CLOCK])
        rows: list[Any] = answer[ROWS]
        return rows

    async def answer(self, request: Request) -> Any:
        """Send a request and return the JSON of its answer."""
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
            answer = await self._exchanged(request, headers, body)
            self._link.clock.saw_date(answer.headers.first("date") or None)
            if answer.status >= 300:
                self._keep_away(answer)
                raise faults.of_answer(answer.status, answer.body)
        except (NotReached, NotAsked) as error:
            fault = faults.of_transport(error, TIMEOUT_S)
            raise type(fault)(masked(str(fault))) from None
        except EverpollError as error:
            error.args = (masked(str(error)),)
            raise
        try:
            return _decoded(answer.body) if answer.body else None
        except RecursionError:
            raise faults.Unreadable(
                f"{request.method} {request.path} was answered with JSON nested too deeply"
            ) from None
        except ValueError:
            raise StoreUnavailable(
                f"{request.method} {request.path} was answered with something that is not JSON: is this PostgREST?"
            ) from None

    async def _exchanged(self, request: Request, headers: Mapping[str, str], body: bytes | None) -> Answer:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT_S
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"PostgREST did not answer within {TIMEOUT_S:g} s: {CONNECTIONS} requests wait for it already"
            ) from None
        try:
            return await self._client.send(
                HttpRequest(
                    self._link.address.rest + request.target,
                    request.method,
                    headers,
                    body,
                    timeout_s=max(deadline - loop.time(), 0.001),
                    max_body_bytes=ANSWER_LIMIT,
                    follow_redirects=False,
                )
            )
        finally:
            self._free.release()

    def _keep_away(self, answer: Answer) -> None:
        asked = answer.headers.first("retry-after")
        # PostgREST, Kong and Cloudflare write seconds, and never a date.
        if answer.status in {429, 503} and asked.isdecimal():
            wait_s = min(float(asked), RETRY_AFTER_LIMIT_S)
            self._link.not_before = max(self._link.not_before, time.monotonic() + wait_s)


def _decoded(body: bytes) -> Any:
    """Decode JSON; the slower decoder also reads what a column of type json may hold: 1e400, half a surrogate pair."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return json.loads(body)
