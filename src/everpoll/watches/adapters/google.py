"""Google long-running operations: `google.longrunning.Operation` as JSON (AIP-151).

    done is false or absent    pending; `metadata` tells how far it is
    done with error            failed; code 1 is canceled (a code of 0 means no error)
    done with response         done with it; done with neither is done with None

An error that is not an object (a text, a list, true) is still an error.

The handle is the operation's name. An operation that is not found is pending, not failed: its record may be late, and
an expired record does not tell how the operation ended. Cancel is best effort: later looks tell whether it worked.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from everpoll.errors import BadInput
from everpoll.http.urls import shown as shown_url
from everpoll.watches.adapters.addresses import Refused, joined
from everpoll.watches.adapters.client import Client, Headers, Memory, OverHttp, Request, as_request
from everpoll.watches.adapters.fetch import Fetch
from everpoll.watches.adapters.response import Response
from everpoll.watches.adapters.statuses import EVIDENCE_LIMIT, TEXT_LIMIT, figure, fitting, floor_s, titled, trouble
from everpoll.watches.limits import PAYLOAD_LIMIT
from everpoll.watches.verdicts import Done, Fail, Started, Verdict, Wait

CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""The names of the codes, by number as in google.rpc.Code."""

RETRYABLE = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL", "UNAVAILABLE"})
"""Codes after which a read may well succeed a little later."""

_PROGRESS = ("progressPercent", "progressPercentage", "progress_percent", "percentComplete", "progress")
# The operation has ended already, is gone, or cannot be canceled: the next look tells which.
_BEST_EFFORT = frozenset({400, 404, 409, 501})


class GoogleOperation(OverHttp):
    """Operations of one service: `GoogleOperation("https://speech.googleapis.com", headers=token_headers)`."""

    def __init__(
        self,
        base_url: str,
        *,
        version: str = "v1",
        headers: Headers | None = None,
        fetch: Fetch | None = None,
        trusted: Iterable[str] = (),
        request_id: str | None = None,
        value_limit: int | None = PAYLOAD_LIMIT,
    ) -> None:
        super().__init__(Client(fetch, headers, trusted=trusted), value_limit=value_limit)
        self._base = joined(base_url, version)
        self._request_id = request_id

    def judge(self, response: Response) -> Verdict:
        """Judge an answer to `GET {name}`."""
        status = _canonical(response)
        if response.status == 404 or status in RETRYABLE:
            note = "the operation is not found" if response.status == 404 else f"the service says {status}"
            return Wait(floor_s(response), note=note, status=status or titled(response.status))
        verdict = trouble(response)
        return self._judged(response) if verdict is None else verdict

    def judge_operation(self, operation: Mapping[str, Any], floor_s: float | None = None) -> Verdict:
        """Judge an operation in the form of its JSON."""
        metadata = operation.get("metadata")
        if operation.get("done") is not True:
            return Wait(floor_s, note=_progress(metadata), status="running")
        error = operation.get("error")
        if error and not isinstance(error, dict):
            error = {"message": error if isinstance(error, str) else str(error)[:TEXT_LIMIT]}
        code = error.get("code", 2) if error else 0
        if not error or code == 0:
            return Done(operation.get("response"), status="done")
        name = code_name(code)
        text = str(error.get("message") or "")[:TEXT_LIMIT]
        shown = {"code": code, "status": name, "message": text, "details": error.get("details", [])}
        reason = f"the operation ended with {name}"
        shown["is_retryable"] = name in RETRYABLE
        return Fail(f"{reason}: {text}" if text else reason, evidence=shown, canceled=code == 1, status=name)

    def _judged(self, response: Response) -> Verdict:
        """Judge an answer, and cut values that are too large for a row."""
        verdict = self.judge_operation(response.fields(), floor_s(response))
        if isinstance(verdict, Done):
            return replace(verdict, value=fitting(verdict.value, response, self._value_limit))
        if isinstance(verdict, Fail):
            details = fitting(verdict.evidence["details"], response, EVIDENCE_LIMIT)
            return replace(verdict, evidence=verdict.evidence | {"details": details})
        return verdict

    def url(self, name: str) -> str:
        """Return the URL of an operation by its name: `operations/1`, `projects/p/locations/l/operations/1`."""
        return joined(self._base, *name.strip("/").split("/"))

    async def start(self, op: Request | Mapping[str, Any] | str, key: str) -> Started:
        """Start the operation; the handle is its name. It may have ended already.

        If the service supports request ids (AIP-155), its reference names the parameter: pass that name, as in
        `request_id="requestId"`. Without it no id is sent, because other services refuse unknown parameters.
        """
        request = as_request(op)
        if self._request_id is not None:
            query = urlencode({self._request_id: str(uuid.uuid5(uuid.NAMESPACE_OID, key))})
            url = f"{request.url}{'&' if '?' in request.url else '?'}{query}"
            request = Request(url, request.method, request.json, request.headers)
        response = await self._client.accepted(request)
        operation = response.fields()
        name = operation.get("name")
        # Some services answer with a finished operation that has no name.
        handle = name if isinstance(name, str) and name else None
        verdict = self._judged(response)
        if handle is None and isinstance(verdict, Wait):
            raise Refused(f"{shown_url(response.url)} answered {response.status} without an operation: it has no name")
        return self._begun(Started(handle, verdict))

    async def cancel(self, handle: Any) -> None:
        """Ask the service to cancel; later looks tell whether it worked."""
        await self._client.accepted(Request(f"{self.url(_name(handle))}:cancel", "POST", {}), tolerated=_BEST_EFFORT)

    async def cleanup(self, handle: Any) -> None:
        """Delete the record of the operation, if the service allows it; never what the operation made."""
        if handle is not None:
            await self._client.accepted(Request(self.url(_name(handle)), "DELETE"), tolerated=_BEST_EFFORT)

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        return self.judge(await self._read(self.url(_name(handle))))


def code_name(code: object) -> str:
    """Return the name of a google.rpc.Code: "UNAVAILABLE" for 14."""
    known = isinstance(code, int) and not isinstance(code, bool) and 0 <= code < len(CODES)
    return CODES[code] if known else f"code {str(code)[:20]}"  # type: ignore[call-overload]  # known: an int


def _canonical(response: Response) -> str | None:
    """Return the code of an error answer: `{"error": {"code": 503, "status": "UNAVAILABLE"}}`."""
    error = response.fields().get("error") if response.status >= 400 else None
    status = error.get("status") if isinstance(error, dict) else None
    return status if status in CODES else None


def _name(handle: Any) -> str:
    if isinstance(handle, str) and handle.strip("/"):
        return handle
    if isinstance(handle, Mapping) and isinstance(handle.get("name"), str) and handle["name"]:
        return str(handle["name"])
    raise BadInput(f"{type(handle).__name__} is not a handle of a Google operation: write its name, operations/…")


def _progress(metadata: Any) -> str | None:
    if not isinstance(metadata, dict):
        return None
    for name in _PROGRESS:
        value = metadata.get(name)
        if (number := figure(value)) is not None:
            return f"{number} %" if "ercent" in name else f"progress {number}"
        if isinstance(value, str) and value:
            return value[:TEXT_LIMIT]
    return None
