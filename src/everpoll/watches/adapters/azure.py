"""Azure long-running operations: resource manager and data plane.

The answer to the start decides where to look, by the first of these that it has:

    Azure-AsyncOperation, Operation-Location   an operation: its `status` decides
    Location                                   202 is pending, any other 2xx is done with the body; re-read each time
    neither, after PUT or PATCH                the resource itself: `properties.provisioningState`; done if it has none

Succeeded, Failed and Canceled end the operation, in upper or lower case; every other word is pending. After a success
the adapter fetches the result: from `resourceLocation` in the body, else from the URL of the start (PUT, PATCH), else
from the start's `Location` (POST). `final_state_via="location"` prefers that `Location`; "azure-async-operation" and
"operation-location" make the operation's own body the result of a POST.
"""

import time
import uuid
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from typing import Any, Literal

from everpoll.errors import BadInput
from everpoll.http.urls import shown
from everpoll.watches.adapters.addresses import Refused, checked, resolved
from everpoll.watches.adapters.client import Client, Headers, Memory, OverHttp, Request, as_request, refusal
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
from everpoll.watches.limits import PAYLOAD_LIMIT
from everpoll.watches.verdicts import Done, Fail, Started, Verdict, Wait

FinalStateVia = Literal["location", "azure-async-operation", "operation-location", "original-uri"]
Via = Literal["operation", "location", "resource"]

_OPERATION = ("azure-asyncoperation", "operation-location")
_VIAS = ("location", "azure-async-operation", "operation-location", "original-uri")


class AzureOperation(OverHttp):
    """Operations of one Azure service: `AzureOperation(headers=token_headers)`."""

    def __init__(
        self,
        *,
        headers: Headers | None = None,
        fetch: Fetch | None = None,
        trusted: Iterable[str] = (),
        final_state_via: FinalStateVia | None = None,
        not_found: int = NOT_FOUND_TOLERATED,
        value_limit: int | None = PAYLOAD_LIMIT,
    ) -> None:
        super().__init__(Client(fetch, headers, trusted=trusted), not_found=not_found, value_limit=value_limit)
        if final_state_via is not None and final_state_via not in _VIAS:
            raise BadInput(f"final_state_via={final_state_via!r}: write one of {', '.join(_VIAS)}")
        self._final = final_state_via

    def judge(self, response: Response, via: Via = "operation", *, misses: int = 0) -> Verdict:
        """Judge an answer of the watched URL; `via` says what kind of URL that is."""
        verdict = trouble(response, misses=misses, tolerated=self._not_found)
        if verdict is not None:
            return verdict
        if via == "location":
            is_pending = response.status == 202
            return Wait(floor_s(response), status="202") if is_pending else Done(content(response, self._value_limit))
        status = _status(response, via)
        if status is None and via == "resource" and response.status == 200 and response.fields():
            return Done(content(response, self._value_limit))
        if status is None:
            # An answer without a status proves nothing. An operation that never reports one ends by the watch's budget.
            return Wait(floor_s(response), note="the answer has no status", status=str(response.status))
        match status.lower():
            case "succeeded":
                return Done(content(response, self._value_limit), status=status[:TEXT_LIMIT])
            case "failed" | "canceled" | "cancelled" as word:
                said = _error(response)
                reason = f"the operation is {status[:TEXT_LIMIT]!r}"
                canceled = word != "failed"
                reason = f"{reason}: {said}" if said else reason
                return Fail(reason, evidence=evidence(response), canceled=canceled, status=status[:TEXT_LIMIT])
        return Wait(floor_s(response), note=_progress(response), status=status[:TEXT_LIMIT])

    def final_url(self, handle: Mapping[str, Any], response: Response) -> str | None:
        """Return the URL of the result after a success; None: the answer's own body is the result."""
        if handle["via"] != "operation":
            return None
        method, location = handle["method"], handle.get("location")
        if self._final == "location" and location:
            return str(location)
        if self._final in ("azure-async-operation", "operation-location") and method == "POST":
            return None
        found = response.fields().get("resourceLocation")
        if isinstance(found, str) and found and self._final != "original-uri":
            return resolved(response.url, found)
        if method in ("PUT", "PATCH") or (self._final == "original-uri" and method != "DELETE"):
            return str(handle["home"])
        return str(location) if method == "POST" and location else None

    def begun(self, request: Request, response: Response) -> Started:
        """Return the handle of the operation that this answer started, and its result if it ended at once."""
        if response.status not in (200, 201, 202, 204):
            raise refusal(response)
        wait = Wait(floor_s(response))
        handle: dict[str, Any] = {"home": request.url, "method": request.method}
        location = response.headers.get("location")
        if location:
            handle["location"] = checked(resolved(response.url, location), home=request.url)
        for name in _OPERATION:
            if response.headers.get(name):
                url = checked(resolved(response.url, response.headers[name]), home=request.url)
                return Started(handle | {"via": "operation", "url": url}, wait)
        if location:
            return Started(handle | {"via": "location", "url": handle["location"]}, wait)
        if request.method in ("PUT", "PATCH") and not _is_over(response):
            return Started(handle | {"via": "resource", "url": request.url}, wait)
        if response.status == 202:
            raise Refused(f"{shown(response.url)} answered 202 and does not say where to look")
        return Started(None, Done(content(response, self._value_limit), why="the start was answered at once"))

    async def start(self, op: Request | Mapping[str, Any] | str, key: str) -> Started:
        """Start the operation. Services that support repeatable requests get the same id each time."""
        request = as_request(op)
        own = {
            "Repeatability-Request-ID": str(uuid.uuid5(uuid.NAMESPACE_OID, key)),
            "Repeatability-First-Sent": formatdate(time.time(), usegmt=True),
            "x-ms-client-request-id": str(uuid.uuid5(uuid.NAMESPACE_OID, key)),
            **request.headers,
        }
        response = await self._client.send(Request(request.url, request.method, request.json, own))
        return self._begun(self.begun(request, response))

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        place = _place(handle)
        url, home, via = memory.get("remote_url") or place["url"], place["home"], place["via"]
        response = await self._read(url, home=home, origin=self._remembered_origin(memory))
        verdict = self.judge(response, via, misses=self._misses(response, memory))
        if isinstance(verdict, Wait) and via == "location" and response.headers.get("location"):
            self._move(memory, checked(resolved(response.url, response.headers["location"]), home=home), response, home)
        final = self.final_url(place, response) if isinstance(verdict, Done) else None
        origin = UrlOrigin(response.url, response.peer)
        return verdict if final is None else await self._result(final, home, origin, memory)

    async def _result(self, url: str, home: str, origin: UrlOrigin, memory: Memory) -> Verdict:
        response = await self._read(url, home=home, origin=origin)
        # A count of its own: the operation itself is found each time, which sets the other count back to zero.
        misses = self._misses(response, memory, "remote_result_misses")
        verdict = trouble(response, misses=misses, tolerated=self._not_found)
        if verdict is not None:
            return verdict
        if response.status == 202:
            return Wait(floor_s(response), note=f"succeeded; {shown(url)} has no result yet", status="Succeeded")
        return Done(content(response, self._value_limit), status="Succeeded")


def _is_over(response: Response) -> bool:
    """Return True if the resource has reached its final state."""
    state = _status(response, "resource")
    return response.status == 204 or (response.status == 200 and (state or "succeeded").lower() == "succeeded")


def _place(handle: Any) -> dict[str, Any]:
    if isinstance(handle, str):
        # An operation that was started elsewhere: only `resourceLocation` can name its result.
        return {"home": handle, "url": handle, "via": "operation", "method": "GET"}
    if isinstance(handle, Mapping) and {"home", "url", "via", "method"} <= set(handle):
        return dict(handle)
    raise BadInput(
        f"{type(handle).__name__} is not a handle of an Azure operation: write its URL, or what start() returned"
    )


def _status(response: Response, via: Via) -> str | None:
    holder = response.fields()
    if via == "resource":
        properties = holder.get("properties")
        holder = properties if isinstance(properties, dict) else {}
    word = holder.get("status" if via == "operation" else "provisioningState")
    return word.strip() if isinstance(word, str) and word.strip() else None


def _error(response: Response) -> str | None:
    body = response.fields()
    properties = body.get("properties")
    for holder in (body, properties if isinstance(properties, dict) else {}):
        if isinstance(holder.get("error"), dict):
            return message(holder)
    return None


def _progress(response: Response) -> str | None:
    percent = figure(response.fields().get("percentComplete"))
    return None if percent is None else f"{percent} %"
