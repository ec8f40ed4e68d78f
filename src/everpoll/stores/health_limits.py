"""Limits of what is recorded of a look: names from the user are checked, texts from remotes are cut to fit.

Promises: what passes can be kept by every database, under the same value on each of them. A text of a remote never
raises: it is cut, and a NUL or half a character is escaped.
"""

import math
from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from everpoll.errors import BadInput
from everpoll.policy.rollup import HealthWord
from everpoll.stores.contract import encode
from everpoll.stores.health import BATCH_LIMIT, WINDOW_BYTES, NewLook
from everpoll.stores.limits import NAME_BYTES, size_of

DEPENDENCY_CHARS = 250
"""The longest name of a dependency. It is part of an index, and takes a thousand bytes at most."""
TEXT_CHARS = 2_000
JSON_BYTES = 16_000
"""The longest JSON value of a dependency."""
LARGEST = 2**31 - 1
"""Microseconds of a latency (36 minutes) and milliseconds of a span (25 days); larger ones are cut to it."""
LATEST_S = 253_402_300_800.0
"""The year 10000."""
STATUSES = frozenset(get_args(HealthWord))


def check_looks(looks: Sequence[NewLook]) -> None:
    """Raise `BadInput` for a batch that cannot be written."""
    if len(looks) > BATCH_LIMIT:
        raise BadInput(f"a batch of {len(looks):,} looks is more than {BATCH_LIMIT:,}: write it in parts")
    for look in looks:
        check_name("service", look.service)
        if look.status not in STATUSES:
            raise BadInput(f"service {look.service!r}: status must be one of {sorted(STATUSES)}, not {look.status!r}")
        if not 0 <= look.at < LATEST_S:
            raise BadInput(f"service {look.service!r}: at must be in seconds since the epoch, not {look.at!r}")
        if not 0 < look.span_s < math.inf:
            raise BadInput(f"service {look.service!r}: span_s must be a number of seconds above 0, not {look.span_s!r}")


def check_name(what: str, name: str) -> None:
    """Raise `BadInput` for a name that a database could not keep."""
    if name and len(name) <= NAME_BYTES and name.isascii() and "\0" not in name:
        return  # nearly every name, at a third of the cost
    if not name:
        raise BadInput(f"a {what} must have a name")
    if "\0" in name or size_of(name) > NAME_BYTES or not _is_unicode(name):
        shown = name[:80].encode("utf-8", "backslashreplace").decode()
        raise BadInput(f"{what} {shown!r}: its name must be at most {NAME_BYTES:,} bytes of text without NUL")


def check_names(services: Sequence[str]) -> None:
    """Raise `BadInput` for a name of a service that a database could not keep."""
    for service in services:
        check_name("service", service)


def window_body(body: Any) -> str:
    """Return the JSON of a maintenance window."""
    text = encode(body)
    if size_of(text) > WINDOW_BYTES:
        raise BadInput(f"a maintenance window of {size_of(text):,} bytes is more than {WINDOW_BYTES:,}")
    return text


def fitting_text(text: str | None, most: int = TEXT_CHARS) -> str | None:
    """Return the text as it is stored."""
    return None if text is None else _escaped(text[:most])[:most]


def dependency_name(name: str) -> str:
    """Return the name of a dependency as it is stored."""
    if len(name) <= DEPENDENCY_CHARS and name.isascii() and "\0" not in name:
        return name  # nearly every name, at a third of the cost
    return _escaped(name[:DEPENDENCY_CHARS])[:DEPENDENCY_CHARS]


def fitting_json(value: Any) -> str | None:
    """Return JSON as it is stored; None stays None. A value that is too large is replaced by a note."""
    if value is None:
        return None
    try:
        text = encode(value)
    except (RecursionError, msgspec.MsgspecError, ValueError, OverflowError, TypeError):
        text = encode({"unreadable": _escaped(repr(value)[:TEXT_CHARS])})
    return text if size_of(text) <= JSON_BYTES else encode({"too_large": f"{size_of(text):,} bytes were dropped"})


def milliseconds(at: float) -> int:
    """Return an instant as it is stored."""
    return round(at * 1_000)


def span_ms(span_s: float) -> int:
    """Return a span as it is stored: at least a millisecond."""
    return max(1, round(min(span_s * 1_000, LARGEST)))


def latency_us(latency_ms: float | None) -> int | None:
    """Return a latency as it is stored; None for what is not a number above 0."""
    if latency_ms is None or not 0 < latency_ms < math.inf:
        return None
    rounded = round(min(latency_ms * 1_000, LARGEST))
    return rounded or 1


def http_status(status: int | None) -> int | None:
    """Return a status code as it is stored; None for what cannot be one."""
    return status if status is not None and 0 < status < 1_000 else None


def _escaped(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\\u0000")
    return text if _is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()


def _is_unicode(text: str) -> bool:
    """Return False if the text has half a character, which UTF-8 cannot represent."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
