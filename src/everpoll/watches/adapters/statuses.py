"""Judges an HTTP status, before any protocol reads the answer.

    2xx                       None: the protocol reads the answer
    408, 425, 429, 5xx        Wait: the remote is busy or broken, which tells nothing about the operation
    404                       Wait, up to `tolerated` times in a row (a new operation may not be found yet), then Fail
    anything else             Fail: another request would get the same answer

Pure.
"""

from http import HTTPStatus
from typing import Any

from everpoll.errors import BadInput
from everpoll.http.retry_after import retry_after_s
from everpoll.http.urls import shown
from everpoll.watches.adapters.response import Response
from everpoll.watches.limits import PAYLOAD_LIMIT, encoded
from everpoll.watches.verdicts import Fail, Wait

TEXT_LIMIT = 500
EVIDENCE_LIMIT = 4_000
NOT_FOUND_TOLERATED = 3


def is_transient(status: int) -> bool:
    """Return True if the same request may succeed a little later."""
    return status in (408, 425, 429) or status >= 500


def trouble(response: Response, *, misses: int = 0, tolerated: int = NOT_FOUND_TOLERATED) -> Wait | Fail | None:
    """Return the verdict on an answer that is not a success, else None; `misses` answers of 404 came right before."""
    if 200 <= response.status < 300:
        return None
    what = f"{shown(response.url)} answered {titled(response.status)}"
    if is_transient(response.status):
        return Wait(floor_s(response), note=what, status=str(response.status))
    if response.status == 404 and misses < tolerated:
        return Wait(floor_s(response), note=f"{what}, {misses + 1} of {tolerated} tolerated", status="404")
    said = message(response.json())
    return Fail(f"{what}: {said}" if said else what, evidence=evidence(response))


def floor_s(response: Response) -> float | None:
    """Return the wait that the remote asks for, or None. 0 counts as None: else looks would follow without a pause."""
    return retry_after_s(response.headers, now=response.received_at) or None


def titled(status: int) -> str:
    """Return a status with its phrase: "404 Not Found"."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def message(body: Any) -> str | None:
    """Return the text of an error body, in the shapes of Azure, Google, OpenAI, Anthropic and RFC 9457."""
    if not isinstance(body, dict):
        return None
    error = body.get("error", body)
    if isinstance(error, str):
        return error[:TEXT_LIMIT]
    if not isinstance(error, dict):
        return None
    texts = {name: value for name, value in error.items() if isinstance(value, str) and value}
    code = next((texts[name] for name in ("code", "type", "status") if name in texts), "")
    text = next((texts[name] for name in ("message", "detail", "title") if name in texts), "")
    # The type of a problem (RFC 9457) is a URI, which does not help people.
    return ": ".join(part for part in (code if ":" not in code else "", text) if part)[:TEXT_LIMIT] or None


def evidence(response: Response) -> dict[str, Any]:
    """Return the answer as evidence, bounded so that a row can hold it."""
    small = len(response.body) <= EVIDENCE_LIMIT
    body = response.json() if small else None
    text = response.body[:EVIDENCE_LIMIT].decode("utf-8", "replace")
    return {"status": response.status, "url": shown(response.url), "body": text if body is None else body}


def content(response: Response, limit: int | None = PAYLOAD_LIMIT) -> Any:
    """Return the body as JSON, else as text, else None; `fitting` replaces one that is too large."""
    body = response.json()
    return fitting(body if body is not None else response.body.decode("utf-8", "replace") or None, response, limit)


def fitting(value: Any, response: Response, limit: int | None = PAYLOAD_LIMIT) -> Any:
    """Return the value, or its URL and size if it takes more than `limit` bytes of JSON; None: no limit.

    A successful operation stays successful, even if its value does not fit into a row.
    """
    if limit is None:
        return value
    try:
        encoded(value, "the value", limit)
    except BadInput:
        note = f"too large for a row (more than {limit:,} bytes), or nested too deeply: fetch it from the URL"
        return {"url": shown(response.url), "bytes": len(response.body), "note": note}
    return value


def figure(value: Any) -> str | None:
    """Return a number as text, however large it is; None if the value is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return f"{value:g}"
    except OverflowError:
        return None
