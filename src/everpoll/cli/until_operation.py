"""The operation of `everpoll until`: an address and options in; start, look and cancel of an adapter out.

`auto` recognises a protocol by the host, else by the answers. It reads answers as HTTP 202. Operations of Google and
batches of OpenAI and Anthropic answer a plain 200 while they run, so it judges those by the rules of their adapters.
"""

import errno
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from everpoll.errors import BadInput
from everpoll.http.contract import Kind, NotReached
from everpoll.http.urls import shown
from everpoll.policy import Budget
from everpoll.watches.adapters import Fetch, HttpFetch, Memory, Refused, RemoteBusy, Request, Response
from everpoll.watches.adapters.addresses import checked, joined
from everpoll.watches.adapters.anthropic_batch import BASE_URL as ANTHROPIC
from everpoll.watches.adapters.anthropic_batch import VERSION, AnthropicBatch
from everpoll.watches.adapters.azure import AzureOperation
from everpoll.watches.adapters.client import Client, OverHttp
from everpoll.watches.adapters.google import GoogleOperation
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.adapters.openai_batch import BASE_URL as OPENAI
from everpoll.watches.adapters.openai_batch import OpenAIBatch
from everpoll.watches.adapters.statuses import evidence, is_transient
from everpoll.watches.adapters.waiter import Waiter, load
from everpoll.watches.verdicts import Done, Fail, Started, Verdict, Wait

ADAPTERS = ("auto", "http202", "azure", "google", "waiter", "openai", "anthropic")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
Shape = Literal["google", "openai", "anthropic"]
_VERSION = re.compile(r"v[0-9]+[a-z0-9]*")
_NO_CANCEL = {"azure": "Azure's services have no common way to cancel", "waiter": "a waiter only looks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOptions:
    """The checked options of the command line. It has secrets: never print it."""

    url: str
    method: str
    data: Any = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    adapter: str = "auto"
    model: Path | None = None
    waiter: str | None = None
    may_cancel: bool = False

    @property
    def begins(self) -> bool:
        """Whether this command starts the operation; otherwise it runs already."""
        return self.method != "GET"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Start, look and cancel of the operation, for a watch."""

    adapter: str
    look: Callable[[Any, Memory], Awaitable[Verdict]]
    handle: Any = None
    start: Callable[[str], Awaitable[Any]] | None = None
    cancel: Callable[[Any], Awaitable[None]] | None = None
    every_s: float | None = None
    budget: Budget | None = None
    """The interval and the budget of a waiter's model."""
    secrets: tuple[str, ...] = field(default=(), repr=False)


def operation_for(wanted: OperationOptions, fetch: Fetch) -> Operation:
    """Return the operation; `BadInput` or `Refused` if the options contradict each other."""
    name = _named(wanted)
    if (wanted.model is None) != (wanted.waiter is None):
        raise BadInput("a waiter is found by its file and its name: write --model waiters.json --waiter TableExists")
    if wanted.may_cancel and name in _NO_CANCEL:
        raise BadInput(f"--cancel: {_NO_CANCEL[name]}; leave it out, and Ctrl-C ends the waiting alone")
    if name not in ("openai", "anthropic") or "://" in wanted.url:
        checked(wanted.url, home=wanted.url)
    return _MAKERS[name](wanted, fetch)


def _named(wanted: OperationOptions) -> str:
    """Return the adapter, if the options or the address determine it."""
    if wanted.adapter != "auto":
        return wanted.adapter
    if wanted.model is not None:
        return "waiter"
    if "://" not in wanted.url:
        for prefix, name in (("msgbatch_", "anthropic"), ("batch_", "openai")):
            if wanted.url.startswith(prefix):
                return name
        # Leave out parts that may be secret: user and password, query, fragment.
        bare = re.split(r"[?#]", wanted.url, maxsplit=1)[0].rpartition("@")[2]
        raise BadInput(f"{bare!r} is not a URL: write https://{bare}")
    host = _host(wanted.url)
    known = {"management.azure.com": "azure", "api.openai.com": "openai", "api.anthropic.com": "anthropic"}
    return "google" if host.endswith(".googleapis.com") else known.get(host, "auto")


# ── one protocol each ────────────────────────────────────────────────────────────────────────────────────────────────


def _auto(wanted: OperationOptions, fetch: Fetch) -> Operation:
    return _over_http(wanted, "auto", AnyOperation(wanted.headers, fetch, "DELETE" if wanted.may_cancel else None))


def _http202(wanted: OperationOptions, fetch: Fetch) -> Operation:
    cancel_method = "DELETE" if wanted.may_cancel else None
    adapter = Http202(headers=wanted.headers, fetch=fetch, cancel_method=cancel_method, value_limit=None)
    return _over_http(wanted, "http202", adapter)


def _azure(wanted: OperationOptions, fetch: Fetch) -> Operation:
    return _over_http(wanted, "azure", AzureOperation(headers=wanted.headers, fetch=fetch, value_limit=None))


def _over_http(wanted: OperationOptions, name: str, adapter: Http202 | AzureOperation) -> Operation:
    request = Request(wanted.url, wanted.method, wanted.data)
    return Operation(
        adapter=name,
        look=adapter.look,
        handle=wanted.url,
        start=(lambda key: adapter.start(request, key)) if wanted.begins else None,
        cancel=adapter.cancel if wanted.may_cancel and isinstance(adapter, Http202) else None,
    )


def _google(wanted: OperationOptions, fetch: Fetch) -> Operation:
    base, version, name = google_address(wanted.url)
    adapter = GoogleOperation(base, version=version, headers=wanted.headers, fetch=fetch, value_limit=None)
    request = Request(wanted.url, wanted.method, wanted.data)
    if not wanted.begins and urlsplit(wanted.url).query:
        raise BadInput("an operation of Google's has no query: send a key with --header 'X-Goog-Api-Key: …'")
    return Operation(
        adapter="google",
        look=adapter.look,
        handle=name,
        start=(lambda key: adapter.start(request, key)) if wanted.begins else None,
        cancel=adapter.cancel if wanted.may_cancel else None,
    )


def google_address(url: str) -> tuple[str, str, str]:
    """Return base, version and name in the URL of an operation: …/v1/operations/7."""
    parts = urlsplit(url)
    segments = parts.path.strip("/").split("/")
    places = [number for number, one in enumerate(segments) if _VERSION.fullmatch(one)]
    if not places or places[0] + 1 >= len(segments):
        raise BadInput(f"{shown(url)} is not an address of Google's: write https://HOST/v1/operations/NAME")
    base = "/".join([f"{parts.scheme}://{parts.netloc}", *segments[: places[0]]])
    return base, segments[places[0]], "/".join(segments[places[0] + 1 :])


def _openai(wanted: OperationOptions, fetch: Fetch) -> Operation:
    key = os.environ.get("OPENAI_API_KEY", "")
    headers = _with_key(wanted.headers, "Authorization", key and f"Bearer {key}", "OPENAI_API_KEY")
    base, batch = _batch_address(wanted, OPENAI)
    adapter = OpenAIBatch(base_url=base, headers=headers, fetch=fetch)
    return _batch(wanted, "openai", adapter, batch, key)


def _anthropic(wanted: OperationOptions, fetch: Fetch) -> Operation:
    key = os.environ.get("ANTHROPIC_API_KEY", "")
    headers = _with_key(wanted.headers, "x-api-key", key, "ANTHROPIC_API_KEY") | {"anthropic-version": VERSION}
    base, batch = _batch_address(wanted, f"{ANTHROPIC}/v1/messages")
    adapter = AnthropicBatch(base_url=base.removesuffix("/v1/messages"), headers=headers, fetch=fetch)
    return _batch(wanted, "anthropic", adapter, batch, key)


def _batch(
    wanted: OperationOptions, name: str, adapter: OpenAIBatch | AnthropicBatch, batch: str, key: str
) -> Operation:
    return Operation(
        adapter=name,
        look=adapter.look,
        handle=batch,
        start=(lambda run_key: adapter.start(wanted.data, run_key)) if wanted.begins else None,
        cancel=adapter.cancel if wanted.may_cancel else None,
        secrets=(key,),
    )


def _batch_address(wanted: OperationOptions, base: str) -> tuple[str, str]:
    """Return the service's base and the batch's id, from …/batches/ID, or from the id alone."""
    if "://" not in wanted.url:
        return base, wanted.url
    found = re.fullmatch(r"(.+)/batches(?:/([^/?]+))?/?", wanted.url)
    if found is None or (found[2] is None and not wanted.begins):
        raise BadInput(f"{shown(wanted.url)} is not an address of a batch: write its id, or {base}/batches/ID")
    return found[1], found[2] or ""


def _with_key(headers: Mapping[str, str], name: str, value: str, variable: str) -> dict[str, str]:
    if any(one.lower() == name.lower() for one in headers):
        return dict(headers)
    if not value:
        raise BadInput(f"no key for the service: set {variable}, or write --header '{name}: …'")
    return {name: value, **headers}


def _waiter(wanted: OperationOptions, fetch: Fetch) -> Operation:
    if wanted.model is None or wanted.waiter is None:
        raise BadInput("a waiter is found by its file and its name: write --model waiters.json --waiter TableExists")
    try:
        model = load(wanted.model, wanted.waiter)
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        why = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise BadInput(f"--model {wanted.model}: {why}") from None
    adapter = WaiterOverHttp(model, wanted, fetch)
    return Operation(adapter="waiter", look=adapter.look, handle=wanted.url, every_s=model.delay_s, budget=model.budget)


_MAKERS: dict[str, Callable[[OperationOptions, Fetch], Operation]] = {
    "auto": _auto,
    "http202": _http202,
    "azure": _azure,
    "google": _google,
    "waiter": _waiter,
    "openai": _openai,
    "anthropic": _anthropic,
}


class AnyOperation(Http202):
    """HTTP 202; bodies of Google, OpenAI and Anthropic are judged by the rules of their own protocols."""

    def __init__(self, headers: Mapping[str, str], fetch: Fetch, cancel_method: str | None) -> None:
        super().__init__(headers=headers, fetch=fetch, cancel_method=cancel_method, value_limit=None)
        self._azure = AzureOperation(headers=headers, fetch=fetch, value_limit=None)
        # Only their `judge` is used, which makes no request.
        self._google = GoogleOperation("https://localhost", value_limit=None)
        self._openai, self._anthropic = OpenAIBatch("unused"), AnthropicBatch("unused")

    async def look(self, handle: Any, memory: Memory | None = None) -> Verdict:
        """Look once, in the protocol of the answer to the start."""
        by_azure = isinstance(handle, Mapping) and "via" in handle
        return await (self._azure.look(handle, memory) if by_azure else super().look(handle, memory))

    def judge(self, response: Response, *, misses: int = 0, is_result: bool = False) -> Verdict:
        """Judge an answer by the shape of its body."""
        match None if is_result else shape_of(response.fields()):
            case "google":
                return self._google.judge(response)
            case "openai":
                return self._openai.judge(response, misses=misses)
            case "anthropic":
                return self._anthropic.judge(response, misses=misses)
        return super().judge(response, misses=misses, is_result=is_result)

    def begun(self, request: Request, response: Response) -> Started:
        """Return the started operation; Azure has its own header for the address."""
        if "azure-asyncoperation" in response.headers:
            return self._azure.begun(request, response)
        return super().begun(request, response)

    def _status_url(self, request: Request, response: Response) -> str:
        body, here = response.fields(), request.url.partition("?")[0]
        match shape_of(body):
            case "google":
                base, version, _ = google_address(request.url)
                return joined(f"{base}/{version}", *str(body["name"]).split("/"))
            case "openai" | "anthropic":
                return joined(here, str(body.get("id")))
        return super()._status_url(request, response)


def shape_of(body: Mapping[str, Any]) -> Shape | None:
    """Return the protocol that this body belongs to, if it is one of those that answer with a plain 200."""
    name = body.get("name")
    if isinstance(name, str) and (isinstance(body.get("done"), bool) or "operations/" in name):
        return "google"
    if body.get("object") == "batch" and "status" in body:
        return "openai"
    return "anthropic" if body.get("type") == "message_batch" else None


class WaiterOverHttp(OverHttp):
    """A waiter's model over the answers of one URL, read with the method that was written."""

    def __init__(self, waiter: Waiter, wanted: OperationOptions, fetch: Fetch) -> None:
        super().__init__(Client(fetch, wanted.headers))
        self._waiter = waiter
        self._request = Request(wanted.url, wanted.method, wanted.data)

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        response = await self._client.send(self._request)
        error = _error_code(response) if response.status >= 400 else None
        state, rule = self._waiter.explain(body=response.json(), status=response.status, error=error)
        # SDKs retry by themselves if the service is too busy, so waiter models have no acceptor for that.
        if is_transient(response.status) and not rule.startswith("acceptor"):
            raise RemoteBusy(response)
        if state == "success":
            return Done(response.json() if error is None else None)
        if state == "failure":
            return Fail(f"the waiter failed: {rule}", evidence=evidence(response))
        return Wait(note=rule, status=error or str(response.status))


def _error_code(response: Response) -> str:
    """Return the error code as AWS's protocols write it: a header, a `__type`, a `code`; else the status."""
    body = response.fields()
    inner = next((body[name] for name in ("Error", "error") if isinstance(body.get(name), dict)), body)
    said = [response.headers.get("x-amzn-errortype"), *(inner.get(name) for name in ("__type", "Code", "code"))]
    code = next((one for one in said if isinstance(one, str) and one), str(response.status))
    return code.partition(":")[0].rpartition("#")[2]


class ExplainingClient:
    """A client whose errors tell in a few words why there is no answer."""

    def __init__(self, fetch: HttpFetch | None = None) -> None:
        self._fetch = fetch or HttpFetch()
        self._has_answered = False

    def led_by(self, home: str, peer: str = "") -> Fetch:
        """Return the same client for a URL to which `home` led."""
        return partial(self._ask, self._fetch.led_by(home, peer))

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """Return the answer; raise `Refused` for errors that waiting does not solve."""
        return await self._ask(self._fetch, method, url, headers=headers, body=body)

    async def _ask(
        self, fetch: Fetch, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        try:
            response = await fetch(method, url, headers=headers, body=body)
        except NotReached as error:
            raise self._explained(error, _host(url)) from None
        self._has_answered = True
        return response

    def _explained(self, error: NotReached, host: str) -> Exception:
        if error.kind is Kind.TLS:
            return Refused(error.reason)
        if error.kind is Kind.DNS:
            # A host that has answered before has an address, so the resolver has failed.
            if not self._has_answered and error.errno != socket.EAI_AGAIN:
                return Refused(f"{host}: there is no host of that name")
            return ConnectionError(f"{host}: its name cannot be looked up now")
        if error.errno == errno.ECONNREFUSED:
            return ConnectionRefusedError(f"{host} refused the connection")
        return error


def data_from(text: str) -> Any:
    """Return the JSON of `--data`: the text itself, or the content of a file after an @."""
    source = text
    if text.startswith("@"):
        try:
            source = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise BadInput(f"--data {text}: {why}") from None
    try:
        return msgspec.json.decode(source)
    except msgspec.DecodeError as error:
        like = """write --data '{"year": 2026}', or --data @file.json"""
        raise BadInput(f"--data is not JSON: {error}; {like}") from None


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
