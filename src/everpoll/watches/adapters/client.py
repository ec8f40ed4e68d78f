"""What the adapters over HTTP share: credentials that stay at home, redirects within limits, errors without secrets.

Promises: the user's headers go to the host that the user named, to hosts listed as `trusted`, and nowhere else; HTTPS
is never left; a chain of redirects is bounded and never a circle; a secret that a remote repeats in an error is masked.
Never retries: what found nobody is done again by the watch.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from everpoll.errors import BadInput, EverpollError
from everpoll.policy import whole_number
from everpoll.watches.adapters.addresses import Refused, checked, may_carry_credentials, resolved, shown
from everpoll.watches.adapters.fetch import MAX_BYTES, Fetch, Response, default_fetch
from everpoll.watches.adapters.statuses import NOT_FOUND_TOLERATED, is_transient, message, titled
from everpoll.watches.retry_after import retry_after_s
from everpoll.watches.verdicts import Fail, Verdict

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Sent with every request; a function is asked each time, for tokens that expire."""

Memory: TypeAlias = MutableMapping[str, Any]
"""What must last between two looks: `w.memory` of a watch, a dictionary elsewhere."""

REDIRECTS = 5
FOLLOWED = frozenset({301, 302, 303, 307, 308})
# Shorter values of headers are words such as "true", which masking would cut out of every text.
_SHORTEST_SECRET_CHARS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """What begins an operation: `Request("https://api.example.com/reports", json={"year": 2026})`."""

    url: str
    method: str = "POST"
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", self.method.upper())


class HttpError(EverpollError):
    """A start, cancel or cleanup that the remote did not accept; `response` is what it said."""

    def __init__(self, response: Response) -> None:
        said = message(response.json())
        what = f"{shown(response.url)} answered {titled(response.status)}"
        super().__init__(f"{what}: {said}" if said else what)
        self.response = response
        self.status = response.status
        self.is_transient = is_transient(response.status)
        self.retry_after_s = retry_after_s(response.headers, now=response.received_at)


class RemoteBusy(HttpError, ConnectionError):
    """The remote answered that it cannot answer now (408, 425, 429, 5xx), which says nothing of the operation.

    An `OSError`, as a connection that broke is: whoever looks again after the one does so after the other.
    """


def refusal(response: Response) -> HttpError:
    """The error that this answer is."""
    return RemoteBusy(response) if is_transient(response.status) else HttpError(response)


class Client:
    """Requests on the user's behalf."""

    def __init__(
        self,
        fetch: Fetch | None = None,
        headers: Headers | None = None,
        *,
        trusted: Iterable[str] = (),
        redirects: int = REDIRECTS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if isinstance(trusted, str):
            raise BadInput(f"trusted={trusted!r}: write a list of host names")
        self._fetch = fetch
        self._headers = headers
        self._trusted = frozenset(host.lower() for host in trusted)
        self._redirects = whole_number(redirects, name="redirects", at_least=0, accepted="how many are followed")
        self._max_bytes = max_bytes

    async def send(self, request: Request, *, home: str | None = None, follow: frozenset[int] = FOLLOWED) -> Response:
        """The answer, after redirects of a GET; `home` is the URL that the user named, this one by default."""
        home, url = home or request.url, checked(request.url, home=home or request.url)
        mine = await self._mine()
        seen = {url}
        while True:
            response = await self._exchange(request, url, home, mine)
            location = response.headers.get("location")
            if request.method != "GET" or response.status not in follow or not location:
                return response
            target = checked(resolved(url, location), home=url)
            # Twice, for a chain may leave HTTPS in two steps as well as in one.
            url = checked(target, home=home)
            if url in seen:
                raise Refused(f"{shown(request.url)} leads in a circle, over {shown(url)}")
            if len(seen) > self._redirects:
                raise Refused(f"{shown(request.url)} leads on and on: {len(seen)} redirects")
            seen.add(url)

    async def accepted(
        self, request: Request, *, home: str | None = None, tolerated: frozenset[int] = frozenset()
    ) -> Response:
        """The answer to an effect: a success, or a refusal that is as good (what is gone need not be canceled)."""
        response = await self.send(request, home=home)
        if 200 <= response.status < 300 or response.status in tolerated:
            return response
        raise refusal(response)

    async def _exchange(self, request: Request, url: str, home: str, mine: Mapping[str, str]) -> Response:
        is_ours = may_carry_credentials(url, home=home, trusted=self._trusted)
        headers = {"Accept": "application/json, */*;q=0.5", **(mine if is_ours else {})}
        if is_ours:
            headers |= request.headers
        body = None
        if request.json is not None:
            body = msgspec.json.encode(request.json)
            headers["Content-Type"] = "application/json"
        fetch = self._fetch or default_fetch()
        response = await fetch(request.method, url, headers=headers, body=body)
        if len(response.body) > self._max_bytes:
            raise Refused(f"{shown(url)} answered with more than {self._max_bytes} bytes")
        text = response.body if response.status < 400 else _masked(response.body, mine)
        return Response(response.status, response.headers, text, url=url, received_at=response.received_at)

    async def _mine(self) -> Mapping[str, str]:
        headers = self._headers() if callable(self._headers) else self._headers
        if inspect.isawaitable(headers):
            headers = await headers
        return headers or {}


class OverHttp:
    """An adapter that looks over HTTP: `_look` asks and judges, this sees to the rest."""

    def __init__(self, client: Client, *, not_found: int = NOT_FOUND_TOLERATED) -> None:
        self._client = client
        accepted = "how many answers of 404 in a row are tolerated, 0 or more"
        self._not_found = whole_number(not_found, name="not_found", at_least=0, accepted=accepted)

    async def look(self, handle: Any, memory: Memory | None = None) -> Verdict:
        """One look. Without `memory`, what is not found is waited for as long as the watch lasts.

        Where no answer came, or only that the remote is busy, an `OSError` is raised (`TimeoutError`, `RemoteBusy`).
        """
        try:
            return await self._look(handle, {} if memory is None else memory)
        except Refused as error:
            return Fail(str(error))

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        raise NotImplementedError

    async def _read(self, url: str, *, home: str | None = None, follow: frozenset[int] = FOLLOWED) -> Response:
        """What the remote says now. One that is busy is raised, for a watch to count and its breaker to see."""
        response = await self._client.send(Request(url, "GET"), home=home, follow=follow)
        if is_transient(response.status):
            raise RemoteBusy(response)
        return response

    def _misses(self, response: Response, memory: Memory) -> int:
        """How many answers of 404 came in a row before this one; counts this one."""
        before = int(memory.get("remote_misses", 0))
        if response.status == 404:
            memory["remote_misses"] = before + 1
        else:
            memory.pop("remote_misses", None)
        return before


def id_in(response: Response) -> str:
    """The id of what an answer made."""
    found = response.fields().get("id")
    if not isinstance(found, str) or not found:
        raise Refused(f"{shown(response.url)} answered {response.status} without an id")
    return found


def as_request(op: Any) -> Request:
    """A request, from one, from a URL to POST to, or from a dictionary of its fields."""
    if isinstance(op, Request):
        return op
    if isinstance(op, str):
        return Request(op)
    if isinstance(op, Mapping) and isinstance(op.get("url"), str) and set(op) <= {"url", "method", "json", "headers"}:
        return Request(**op)
    raise BadInput(f"{type(op).__name__} begins no operation: write Request(url, method=…, json=…)")


def _masked(body: bytes, mine: Mapping[str, str]) -> bytes:
    for value in mine.values():
        for secret in {value, value.rpartition(" ")[2]}:
            if len(secret) >= _SHORTEST_SECRET_CHARS:
                body = body.replace(secret.encode(), b"***")
    return body
