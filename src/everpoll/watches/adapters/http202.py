"""HTTP 202: an operation whose URL answers 202 until the operation has ended.

    202                 pending; `Operation-Location`, else `Location`, else `Content-Location` says where to look next
    200 with a status   its word decides: `{"status": "running"}` is pending, and so is an unknown word
    200, unreadable     pending: JSON that is cut off, or in another encoding, proves nothing
    2xx                 done, with the body
    303                 done: the result is where `Location` leads
    404                 pending a few times in a row: a new operation may not be found yet; then failed
    410, other 4xx      failed                    408, 425, 429, 5xx    pending: the remote is in trouble

Retry-After is a floor wherever it appears. Never leaves HTTPS, never follows a redirect loop, and never reports "done"
for a word that is unknown or not readable.

    report = http202.Http202(headers={"Authorization": f"Bearer {token}"})
    begun = await report.start(Request("https://api.example.com/reports"), key="run-42")
    verdict = await report.look(begun.handle, memory)
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from everpoll.errors import BadInput
from everpoll.http.urls import shown
from everpoll.watches.adapters.addresses import Refused, checked, resolved
from everpoll.watches.adapters.client import (
    FOLLOWED,
    REDIRECTS,
    Client,
    Headers,
    Memory,
    OverHttp,
    Request,
    as_key,
    as_request,
    refusal,
)
from everpoll.watches.adapters.fetch import Fetch
from everpoll.watches.adapters.response import Response
from everpoll.watches.adapters.statuses import (
    NOT_FOUND_TOLERATED,
    TEXT_LIMIT,
    content,
    evidence,
    figure,
    floor_s,
    message,
    trouble,
)
from everpoll.watches.adapters.url_origins import UrlOrigin
from everpoll.watches.faults import NothingSent
from everpoll.watches.limits import PAYLOAD_LIMIT
from everpoll.watches.verdicts import Done, Fail, Started, Verdict, Wait

DONE = ("succeeded", "success", "successful", "completed", "complete", "done", "finished", "ready", "ok")
FAILED = ("failed", "failure", "error", "errored", "aborted", "expired", "rejected", "timedout", "terminated")
CANCELED = ("canceled", "cancelled")
Meaning = Literal["done", "failed", "canceled", "pending"]
_BUILT_IN: dict[Meaning, tuple[str, ...]] = {"done": DONE, "failed": FAILED, "canceled": CANCELED}

_MONITOR = ("operation-location", "location", "content-location")
_PROGRESS = ("percentComplete", "percent_complete", "progress", "percent")


@dataclass(frozen=True, slots=True)
class Words:
    """The meaning of status words in a body: `Words(field="state", done=("archived",))`; unknown words are pending.

    Your words are added to the built-in ones, and win over them. With `field=None` no body is read: then 200 is done.
    """

    field: str | None = "status"
    done: Collection[str] = ()
    failed: Collection[str] = ()
    canceled: Collection[str] = ()

    def __post_init__(self) -> None:
        for name in ("done", "failed", "canceled"):
            if isinstance(getattr(self, name), str):
                raise BadInput(f"{name}={getattr(self, name)!r}: write a list of words")

    def found(self, body: Mapping[str, Any]) -> str | None:
        """Return the status word in a body. Numbers, true and false count as words: list "200" or "true" if they mean
        an end.
        """
        word = None if self.field is None else body.get(self.field)
        if isinstance(word, bool):
            return "true" if word else "false"
        return (word.strip()[:TEXT_LIMIT] if isinstance(word, str) else figure(word)) or None

    def is_without(self, body: Mapping[str, Any]) -> bool:
        """Return True if the field exists and holds no word: an empty text, a list, an object. Null is absent."""
        return self.field is not None and body.get(self.field) is not None and self.found(body) is None

    def meaning(self, word: str) -> Meaning:
        """Return the meaning of a word, whatever its case and separators."""
        plain = _plain(word)
        users: dict[Meaning, Collection[str]] = {"done": self.done, "failed": self.failed, "canceled": self.canceled}
        for meaning, words in (*users.items(), *_BUILT_IN.items()):
            if plain in {_plain(one) for one in words}:
                return meaning
        return "pending"


class Http202(OverHttp):
    """One remote that answers 202: `Http202(headers={"Authorization": …})`."""

    def __init__(
        self,
        *,
        headers: Headers | None = None,
        fetch: Fetch | None = None,
        trusted: Iterable[str] = (),
        words: Words | None = None,
        not_found: int = NOT_FOUND_TOLERATED,
        cancel_method: str | None = None,
        value_limit: int | None = PAYLOAD_LIMIT,
    ) -> None:
        super().__init__(Client(fetch, headers, trusted=trusted), not_found=not_found, value_limit=value_limit)
        self._words = words or Words()
        self._cancel_method = cancel_method

    def judge(self, response: Response, *, misses: int = 0, is_result: bool = False) -> Verdict:
        """Judge an answer of the status URL or, with `is_result`, of the URL of the result."""
        verdict = trouble(response, misses=misses, tolerated=self._not_found)
        if verdict is not None:
            return verdict
        unread = None if is_result else self._unread(response)
        if unread is not None:
            return Wait(floor_s(response), note=unread, status=str(response.status))
        word = None if is_result else self._words.found(response.fields())
        meaning = None if word is None else self._words.meaning(word)
        if meaning in ("failed", "canceled"):
            said = message({"error": response.fields().get("error")})
            reason = f"the remote says {word!r}"
            canceled = meaning == "canceled"
            return Fail(
                f"{reason}: {said}" if said else reason, evidence=evidence(response), canceled=canceled, status=word
            )
        # 202 means pending, whatever good word stands in the body: a success has another HTTP status.
        if response.status == 202 or meaning == "pending":
            return Wait(floor_s(response), note=_progress(response), status=word or "202")
        if response.status == 201 and not response.body and "location" in response.headers:
            return Done(resolved(response.url, response.headers["location"]))
        return Done(content(response, self._value_limit), status=word)

    def _unread(self, response: Response) -> str | None:
        """Return why an answer that should carry a status has none; None: it has one."""
        if self._words.field is None:
            return None
        if response.is_unreadable:
            return "the answer cannot be read as JSON"
        is_wordless = self._words.is_without(response.fields())
        return f"{self._words.field!r} in the answer is not a word" if is_wordless else None

    def next_url(self, response: Response) -> str:
        """Return the URL for the next look. Each answer may name another one."""
        # With any status but 202, Location names the result, and Content-Location the page that was just read.
        names = _MONITOR if response.status == 202 else _MONITOR[:1]
        for name in names:
            if response.headers.get(name):
                return resolved(response.url, response.headers[name])
        return response.url

    async def start(self, op: Request | Mapping[str, Any] | str, key: str) -> Started:
        """Start the operation; the handle has the URL to look at. If the answer is the result, it is done."""
        request = as_request(op)
        own = {"Prefer": "respond-async", "Idempotency-Key": as_key(key), **request.headers}
        response = await self._client.send(Request(request.url, request.method, request.json, own))
        return self._begun(self.begun(request, response))

    def begun(self, request: Request, response: Response) -> Started:
        """Return the handle of the operation that this answer started; raise `HttpError` if it started none."""
        is_monitored = "operation-location" in response.headers
        if response.status in (202, 303) or (is_monitored and 200 <= response.status < 300):
            url = self._monitor(response)
            if url is None and request.method != "GET":
                raise Refused(f"{shown(response.url)} answered {response.status} and does not say where to look")
            return Started(self._handle(request, url or response.url), Wait(floor_s(response)))
        if not 200 <= response.status < 300:
            raise refusal(response)
        verdict = self.judge(response)
        # A plain 200 that says "running" is looked at again.
        return Started(
            self._handle(request, self._status_url(request, response)) if isinstance(verdict, Wait) else None, verdict
        )

    def _handle(self, request: Request, url: str) -> dict[str, Any]:
        return {"home": request.url, "url": checked(url, home=request.url)}

    def _status_url(self, request: Request, response: Response) -> str:
        """Return the URL at which to watch an operation that a plain answer reports as running."""
        url = self._monitor(response)
        if url is not None or request.method == "GET":
            return url or response.url
        word = self._words.found(response.fields())
        said = "which cannot be read" if word is None else repr(word)
        raise Refused(f"{shown(request.url)} answered {response.status}, {said}, and does not say where to look")

    async def cancel(self, handle: Any) -> None:
        """Ask the remote to cancel: send `cancel_method` to the status URL, for which there is no common rule.

        It is the status URL that the start returned: only looks know whether the remote has moved the operation since.
        Raises `NothingSent` if there is no `cancel_method`.
        """
        place = _place(handle)
        if self._cancel_method is None:
            raise NothingSent("this Http202 has no cancel_method=")
        request = Request(place["url"], self._cancel_method)
        # 404, 409, 410: the operation is gone or has ended, so there is nothing to cancel.
        await self._client.accepted(request, home=place["home"], tolerated=frozenset({404, 409, 410}))

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        place = _place(handle)
        url, seen = memory.get("remote_url") or place["url"], set[str]()
        is_result = memory.get("remote_is_result") is True
        origin = self._remembered_origin(memory)
        while True:
            seen.add(url)
            response = await self._read(url, home=place["home"], follow=FOLLOWED - {303}, origin=origin)
            origin = UrlOrigin(response.url, response.peer)
            if response.status != 303 or not response.headers.get("location"):
                break
            url, is_result = resolved(response.url, response.headers["location"]), True
            if url in seen or len(seen) > REDIRECTS:
                raise Refused(f"{shown(place['url'])}: redirect loop over {shown(url)}")
        verdict = self.judge(response, misses=self._misses(response, memory), is_result=is_result)
        if isinstance(verdict, Wait) and 200 <= response.status < 300:
            self._move(memory, checked(self.next_url(response), home=place["home"]), response, place["home"])
            if is_result:
                # The next look reads a result again, whose fields are not a status.
                memory["remote_is_result"] = True
        return verdict

    def _monitor(self, response: Response) -> str | None:
        found = next((response.headers[name] for name in _MONITOR if response.headers.get(name)), None)
        return None if found is None else resolved(response.url, found)


def _plain(word: str) -> str:
    """Return one form for "In_Progress", "in-progress" and "InProgress"."""
    return re.sub(r"[\s_-]+", "", word).lower()


def _place(handle: Any) -> dict[str, Any]:
    if isinstance(handle, str):
        return {"home": handle, "url": handle}
    if isinstance(handle, Mapping) and isinstance(handle.get("url"), str):
        return {"home": handle.get("url"), **handle}
    raise BadInput(
        f"{type(handle).__name__} is not a handle of an HTTP operation: write its URL, or what start() returned"
    )


def _progress(response: Response) -> str | None:
    said = response.fields()
    for name in _PROGRESS:
        value = said.get(name)
        if (number := figure(value)) is not None:
            return f"{number} %" if "ercent" in name else f"{name} {number}"
        if isinstance(value, str) and value:
            return value[:TEXT_LIMIT]
    return None
