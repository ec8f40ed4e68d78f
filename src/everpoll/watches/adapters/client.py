"""The HTTP client of the adapters: it guards credentials, bounds redirects, and keeps secrets out of errors.

Promises: it sends the user's headers and bodies, and every request that is not a read, only to the host that the user
named and to hosts listed as `trusted`. It asks no private address to which a public answer leads. It never leaves
HTTPS. A chain of redirects is bounded and has no loop. A secret that a remote repeats is masked in errors, reasons,
notes and evidence, but not in a result, which belongs to the user. It never retries: the watch looks again.
"""

import inspect
import string
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput, EverpollError
from everpoll.http.headers import sendable
from everpoll.http.retry_after import retry_after_s
from everpoll.http.secrets import Secrets, sensitive
from everpoll.http.urls import shown, target_of
from everpoll.policy import whole_number
from everpoll.watches.adapters.addresses import Refused, checked, may_carry_credentials, resolved
from everpoll.watches.adapters.fetch import MAX_BYTES, Fetch, Guarded, default_fetch, too_large
from everpoll.watches.adapters.response import Response
from everpoll.watches.adapters.statuses import NOT_FOUND_TOLERATED, floor_s, is_transient, message, titled
from everpoll.watches.adapters.threads import in_thread
from everpoll.watches.adapters.url_origins import UrlOrigin, check_by_name
from everpoll.watches.limits import PAYLOAD_LIMIT
from everpoll.watches.verdicts import Done, Fail, Started, Verdict, Wait

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of every request; a function is called for each, for tokens that expire."""

Memory: TypeAlias = MutableMapping[str, Any]
"""Values that must last between two looks: `w.memory` of a watch, a dictionary elsewhere."""

REDIRECTS = 5
FOLLOWED = frozenset({301, 302, 303, 307, 308})
READS = frozenset({"GET", "HEAD"})
# Secrets that were sent are masked in later answers, too. Tokens expire, so only the newest are remembered.
_REMEMBERED = 32
# The limit of an error's body: searching 8 MiB for secrets would block the event loop for a second.
_ERROR_BYTES = 256 * 1024
_PLAIN_IN_KEYS = string.punctuation.replace("%", "")


@dataclass(frozen=True, slots=True)
class Request:
    """The request that starts an operation: `Request("https://api.example.com/reports", json={"year": 2026})`."""

    url: str
    method: str = "POST"
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", self.method.upper())


class HttpError(EverpollError):
    """The remote did not accept a start, cancel or cleanup; `response` is its answer."""

    def __init__(self, response: Response) -> None:
        said = message(response.json())
        what = f"{shown(response.url)} answered {titled(response.status)}"
        super().__init__(f"{what}: {said}" if said else what)
        self.response = response
        self.status = response.status
        self.is_transient = is_transient(response.status)
        self.retry_after_s = retry_after_s(response.headers, now=response.received_at)


class RemoteBusy(HttpError, ConnectionError):
    """The remote cannot answer now (408, 425, 429, 5xx), which does not mean that the operation failed.

    An `OSError`, like a broken connection: a watch treats both alike.
    """


def refusal(response: Response) -> HttpError:
    """Return the error for an answer that is not a success."""
    return RemoteBusy(response) if is_transient(response.status) else HttpError(response)


class Client:
    """Sends requests on the user's behalf."""

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
        self._trusted = frozenset(_normal_host(host) for host in trusted)
        self._redirects = whole_number(redirects, name="redirects", at_least=0, accepted="how many are followed")
        self._max_bytes = max_bytes
        self._sent: dict[frozenset[tuple[str, str]], Secrets] = {}

    async def send(
        self,
        request: Request,
        *,
        home: str | None = None,
        follow: frozenset[int] = FOLLOWED,
        origin: UrlOrigin | None = None,
    ) -> Response:
        """Send a request, follow redirects of a GET, and return the answer.

        `home` is the URL that the user named; by default, that of the request. `origin` is the URL that led to this
        one; by default, home. After a redirect it is the URL that redirected.
        """
        home, url = home or request.url, checked(request.url, home=home or request.url)
        user_headers = await self._user_headers()
        seen, origin, home_answer = {url}, origin or UrlOrigin(home), None
        while True:
            may_have_credentials = self._may_have_credentials(request, url, home)
            fetch = self._fetch_for(url, home, origin, home_answer)
            response = await self._exchange(request, url, user_headers if may_have_credentials else None, fetch)
            origin = UrlOrigin(url, response.peer)
            home_answer = origin if origin.host == target_of(home).host else home_answer
            location = response.headers.get("location")
            if request.method != "GET" or response.status not in follow or not location:
                return response
            target = checked(resolved(url, location), home=url)
            # Checked against home, too: a chain may leave HTTPS in two steps.
            url = checked(target, home=home)
            if url in seen:
                raise Refused(f"{shown(request.url)}: redirect loop over {shown(url)}")
            if len(seen) > self._redirects:
                raise Refused(f"{shown(request.url)}: too many redirects ({len(seen)})")
            seen.add(url)

    async def accepted(
        self, request: Request, *, home: str | None = None, tolerated: frozenset[int] = frozenset()
    ) -> Response:
        """Send a request with an effect; return its answer if it succeeded or has one of the `tolerated` statuses."""
        response = await self.send(request, home=home)
        if 200 <= response.status < 300 or response.status in tolerated:
            return response
        raise refusal(response)

    def is_known(self, url: str, *, home: str) -> bool:
        """Return True if the user named this host: it is that of `home`, or a trusted one."""
        host = target_of(url).host
        return host == target_of(home).host or host in self._trusted

    def masked(self, value: Any) -> Any:
        """Return the value with the secrets masked that were sent recently."""
        for secrets in tuple(self._sent.values()):
            value = secrets.masked(value)
        return value

    def _may_have_credentials(self, request: Request, url: str, home: str) -> bool:
        """Return True if this URL gets the user's headers and body; other hosts get reads only, else raise."""
        may_have_credentials = may_carry_credentials(url, home=home, trusted=self._trusted)
        if not may_have_credentials and request.method not in READS:
            raise Refused(
                f"{request.method} is not sent to {shown(url)}: {shown(home)} led there, and it is another host; "
                "if that is right, list the host in trusted="
            )
        return may_have_credentials

    async def _exchange(
        self, request: Request, url: str, user_headers: Mapping[str, str] | None, fetch: Fetch
    ) -> Response:
        """Send one request. Without `user_headers`, neither headers nor body of the user are sent."""
        headers, body = {"Accept": "application/json, */*;q=0.5"}, None
        if user_headers is not None:
            headers |= {**user_headers, **request.headers}
            self._remember(headers)
        if user_headers is not None and request.json is not None:
            body = msgspec.json.encode(request.json)
            headers["Content-Type"] = "application/json"
        response = await _fetched(fetch, request.method, url, sendable(headers), body)
        body = response.body
        if len(body) > self._max_bytes:
            if response.status < 400:
                raise too_large(url, self._max_bytes)
            # The beginning of an error is enough. A success that is cut off would be wrong.
            body = body[: self._max_bytes]
        if not 200 <= response.status < 300:
            body = self._masked_body(body[:_ERROR_BYTES])
        at, peer = response.received_at, response.peer
        return Response(response.status, response.headers, body, url=url, received_at=at, peer=peer)

    def _fetch_for(self, url: str, home: str, origin: UrlOrigin, home_answer: UrlOrigin | None) -> Fetch:
        """Return the client for this URL: it asks private addresses only if the user or a private address led there."""
        fetch, host = self._fetch or default_fetch(), target_of(url).host
        is_home = host == target_of(home).host
        if host in self._trusted or (is_home and home_answer is None):
            return fetch
        if isinstance(fetch, Guarded):
            # The home host may have public and private addresses: the address that answered earlier decides.
            return fetch.led_by(*(home_answer if is_home and home_answer is not None else origin))
        # Other clients resolve names themselves: for them, only the URL can be checked.
        if not is_home:
            check_by_name(origin, url)
        return fetch

    def _remember(self, headers: Mapping[str, str]) -> None:
        found = sensitive(headers)
        if found and found not in self._sent:
            self._sent[found] = Secrets(dict(found))
            while len(self._sent) > _REMEMBERED:
                del self._sent[next(iter(self._sent))]

    def _masked_body(self, body: bytes) -> bytes:
        """Mask secrets in the body of an error, however JSON writes them."""
        try:
            read = msgspec.json.decode(body)
            masked = self.masked(read)
            return body if masked == read else msgspec.json.encode(masked)
        except (ValueError, RecursionError):
            text = body.decode("utf-8", "surrogateescape")
            masked = self.masked(text)
            return body if masked == text else masked.encode("utf-8", "surrogateescape")

    async def _user_headers(self) -> Mapping[str, str]:
        headers = self._headers() if callable(self._headers) else self._headers
        if inspect.isawaitable(headers):
            headers = await headers
        return headers or {}


async def _fetched(fetch: Fetch, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
    """Ask a client of any kind; a plain function is called in a thread, because it blocks."""
    if inspect.iscoroutinefunction(fetch) or inspect.iscoroutinefunction(getattr(fetch, "__call__", None)):  # noqa: B004
        return await fetch(method, url, headers=headers, body=body)
    answer: Any = await in_thread(_plain_fetches(), fetch, method, url, headers=headers, body=body)
    response: Response = await answer if inspect.isawaitable(answer) else answer
    return response


def _normal_host(host: str) -> str:
    """Return a host in the form in which URLs are compared."""
    try:
        return target_of(f"http://[{host}]/" if ":" in host and "[" not in host else f"http://{host}/").host
    except BadInput:
        raise BadInput(f"trusted: {host[:100]!r} is not a valid host name") from None


@cache
def _plain_fetches() -> DaemonThreads:
    return DaemonThreads(64, "everpoll-fetch")


class OverHttp:
    """Base of adapters over HTTP: `_look` asks and judges; this class masks secrets and handles login pages."""

    def __init__(
        self, client: Client, *, not_found: int = NOT_FOUND_TOLERATED, value_limit: int | None = PAYLOAD_LIMIT
    ) -> None:
        self._client = client
        accepted = "how many answers of 404 in a row are tolerated, 0 or more"
        self._not_found = whole_number(not_found, name="not_found", at_least=0, accepted=accepted)
        self._value_limit = value_limit

    async def look(self, handle: Any, memory: Memory | None = None) -> Verdict:
        """Look once and return a verdict.

        Without `memory`, answers of 404 are not counted, so they stay pending. If no answer comes, or the remote is
        busy, this raises an `OSError` (`TimeoutError`, `RemoteBusy`).
        """
        try:
            return self._without_secrets(await self._look(handle, {} if memory is None else memory))
        except Refused as error:
            return Fail(str(error))
        except _LoginPage as page:
            return Wait(page.floor_s, note=str(page), status=page.status)

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        raise NotImplementedError

    async def _read(
        self,
        url: str,
        *,
        home: str | None = None,
        follow: frozenset[int] = FOLLOWED,
        origin: UrlOrigin | None = None,
    ) -> Response:
        """Read a URL. Raise `RemoteBusy` for an answer that says "busy", so that the watch and its breaker count it."""
        response = await self._client.send(Request(url, "GET"), home=home, follow=follow, origin=origin)
        if is_transient(response.status):
            raise RemoteBusy(response)
        # Results at another host are files or JSON. A page is most likely a login page, after a session has ended.
        is_page = 200 <= response.status < 300 and response.content_type == "text/html"
        if is_page and not self._client.is_known(response.url, home=home or url):
            raise _LoginPage(response)
        return response

    def _without_secrets(self, verdict: Verdict) -> Verdict:
        """Mask secrets in a verdict, but not in its result, which belongs to the user."""
        masked = self._client.masked
        if isinstance(verdict, Done):
            return replace(verdict, status=masked(verdict.status))
        if isinstance(verdict, Fail):
            reason, evidence = masked(verdict.reason), masked(verdict.evidence)
            return replace(verdict, reason=reason, evidence=evidence, status=masked(verdict.status))
        return Wait(verdict.after_s, note=masked(verdict.note), status=masked(verdict.status))

    def _remembered_origin(self, memory: Memory) -> UrlOrigin | None:
        """Return the URL that led to the remembered one; None if that was home."""
        found = memory.get("remote_leader")
        return UrlOrigin(*found) if isinstance(found, list) and len(found) == 2 else None

    def _move(self, memory: Memory, url: str, response: Response, home: str) -> None:
        """Look at `url` from now on. If another host than home led there, remember that host, too."""
        memory["remote_url"] = url
        if self._client.is_known(response.url, home=home):
            memory.pop("remote_leader", None)
        else:
            memory["remote_leader"] = [shown(response.url), response.peer]

    def _begun(self, started: Started) -> Started:
        return Started(started.handle, self._without_secrets(started.verdict))

    def _misses(self, response: Response, memory: Memory, name: str = "remote_misses") -> int:
        """Return how many answers of 404 came in a row before this one, and count this one."""
        before = int(memory.get(name, 0))
        if response.status == 404:
            memory[name] = before + 1
        else:
            memory.pop(name, None)
        return before


class _LoginPage(Exception):
    """The answer is an HTML page of a host that the user did not name: most likely a login page."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"{shown(response.url)} answered with an HTML page: is it a login page?")
        self.floor_s = floor_s(response)
        self.status = str(response.status)


def id_in(response: Response) -> str:
    """Return the id in an answer that created something."""
    found = response.fields().get("id")
    if not isinstance(found, str) or not found:
        raise Refused(f"{shown(response.url)} answered {response.status} without an id")
    return found


def as_request(op: Any) -> Request:
    """Return a request: `op` is one, or the URL to POST to, or a dictionary with the fields of a request."""
    if isinstance(op, Request):
        return op
    if isinstance(op, str):
        return Request(op)
    if isinstance(op, Mapping) and isinstance(op.get("url"), str) and set(op) <= {"url", "method", "json", "headers"}:
        return Request(**op)
    raise BadInput(f"{type(op).__name__} is not a request: write Request(url, method=…, json=…)")


def as_key(key: str) -> str:
    """Percent-encode an idempotency key so that a header can carry it."""
    return quote(key, safe=_PLAIN_IN_KEYS)
