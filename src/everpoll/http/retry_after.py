"""Retry-After: how long the remote asks clients to wait, read from the response of any client library.

Promises: reads errors and responses of httpx, aiohttp, requests, urllib, botocore and everpoll's own adapters, headers,
and bare values; seconds, milliseconds (`retry-after-ms`, `x-ms-retry-after-ms`) and HTTP dates. The result is a number
from 0 to `longest`, or None if there is no usable value. Nothing that a remote wrote raises an error.
An HTTP date is compared with the response's own `Date`, if it has one: both come from the same clock, so a worker with
a wrong clock still waits for the right time.
"""

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, cast

from everpoll.policy import Duration, seconds

LONGEST = "1d"
"""The longest wait that is respected: a mistake of a remote must not stop a run for years."""

# Milliseconds first, because they are more exact if a server sends both.
_IN_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")
# Some servers send fractions; no useful value is longer than this.
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,9})?", re.ASCII)
_LONGEST_CAUSE_CHAIN = 5


def retry_after_s(said: object, *, now: float | None = None, longest: Duration = LONGEST) -> float | None:
    """Return how many seconds an error, a response, headers or a header's value ask to wait; None if they do not.

    `now` is the epoch time with which a date is compared if the sender's `Date` is missing; by default, the clock's.
    """
    now = time.time() if now is None else now
    if isinstance(said, str | bytes | int | float):
        wait_s = _value(said, now)
    else:
        headers = _headers(said)
        wait_s = None if headers is None else _in_headers(headers, now)
    return None if wait_s is None else min(wait_s, seconds(longest, name="longest"))


def _in_headers(headers: Mapping[str, str], now: float) -> float | None:
    for name in _IN_MILLISECONDS:
        wait_ms = _number(headers.get(name, ""))
        if wait_ms is not None:
            return wait_ms / 1000
    sent_at = _date(headers.get("date", ""))
    return _value(headers.get("retry-after", ""), now if sent_at is None else sent_at)


def _value(said: str | bytes | float, now: float) -> float | None:
    if isinstance(said, bytes):
        said = said.decode("latin-1")
    if isinstance(said, str):
        wait_s = _number(said)
        if wait_s is not None:
            return wait_s
        until = _date(said)
        return None if until is None else max(0.0, until - now)
    # True and False are numbers to Python, but not a wait.
    try:
        usable = not isinstance(said, bool) and math.isfinite(said) and said >= 0
    except OverflowError:
        return None
    return float(said) if usable else None


def _number(text: str) -> float | None:
    # If a header was sent twice ("9, 5"), the first one counts, as for most clients.
    text = text.partition(",")[0].strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _date(text: str) -> float | None:
    if not text or len(text) > 64:
        return None
    try:
        moment = parsedate_to_datetime(text.strip())
        # An HTTP date is in GMT, whether it says so ("GMT", "-0000") or, in the oldest of its three forms, does not.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _headers(said: object) -> Mapping[str, str] | None:
    """Return the headers of an error, of its causes or of a response; headers with a Retry-After come first."""
    fallback = None
    for _ in range(_LONGEST_CAUSE_CHAIN):
        for candidate in (_attribute(said, "response"), said):
            # `is not None`, because a response of `requests` with an error status, such as 429, is false.
            headers = None if candidate is None else _lowered(candidate)
            if headers is not None and any("retry-after" in name for name in headers):
                return headers
            fallback = fallback if fallback is not None else headers
        cause = getattr(said, "__cause__", None)
        if cause is None:
            break
        said = cause
    return fallback


def _lowered(holder: Any) -> Mapping[str, str] | None:
    """Return the headers of this object, which may be the headers themselves, in lower case."""
    headers = _attribute(holder, "headers")
    if headers is None and isinstance(holder, Mapping):
        # A botocore error carries a dictionary for a response.
        metadata = holder.get("ResponseMetadata")
        headers = metadata.get("HTTPHeaders") if isinstance(metadata, Mapping) else holder
    if not hasattr(headers, "items"):
        return None
    try:
        pairs = [(_text(name).lower(), _text(value)) for name, value in cast("Any", headers).items()]
    except Exception:  # noqa: BLE001 - an object of another library, whose headers cannot be read
        return None
    # If several headers have one name, the first one counts, as for most clients.
    return dict(reversed(pairs))


def _attribute(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property of another library may raise anything
        return None


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
