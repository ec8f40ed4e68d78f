"""Stored secrets: masks credentials in stored values before the command line or the HTTP API show them.

A handle may be a URL with a signature, an operation a request with its headers: both must be stored, but `everpoll runs
show` may be on a screen that other people see. Secrets are recognized by the names of their fields. Pure.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.http.secrets import DEPTH_LIMIT, MASK, rewritten

# The token of a page and the key of a run are not secrets; "api_key" and "x-goog-api-key" are.
_FIELD = re.compile(
    r"authorization|cookie|passw|secret|credential|signature|^sig$|(api|access|private|account|signing)[-_]?key"
    r"|^token$|(access|refresh|id|auth|bearer|session|security|sas)[-_]?token|^auth$|session[-_]?id",
    re.IGNORECASE,
)
# The fields of a dependency that its service wrote: they may repeat a secret.
_OF_DEPENDENCIES = frozenset(
    {"name", "canonical", "type", "impact", "description", "contact", "check_details", "error", "error_message"}
)
_PARAMETER = re.compile(r"(?<=[?&#;])([^=&#\s]{1,100})=([^&#\s\"']+)")
_USER = re.compile(r"(?<=://)[^/@\s]+@")
SHORTEST_SCHEME = len("basic") + 1 + 8
_SCHEME = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
# Every match of the patterns above contains one of these.
_TRACES = (
    "=",
    "@",
    "bearer",
    "basic",
    "auth",
    "cookie",
    "passw",
    "secret",
    "credential",
    "sig",
    "key",
    "token",
    "session",
)
PLAIN_BYTES = 10_000
"""JSON up to this size is searched for traces of secrets before its texts are read one by one."""
TOGETHER = 16
"""How many values of a list are searched at once: few enough for PLAIN_BYTES and DEPTH_LIMIT."""
_encode = msgspec.json.Encoder().encode


Dependency = TypeVar("Dependency", bound=Struct)


def without_secrets(value: Any) -> Any:
    """Return the value with secrets masked, recognized by names of fields, URL parameters and schemes."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return _cut(value)
    return value if _is_plain(value) else rewritten(value, _masked, DEPTH_LIMIT)


def each_without_secrets(values: Sequence[Any]) -> list[Any]:
    """Return `without_secrets` of each value. Values without secrets are recognized many at a time."""
    found: list[Any] = []
    for start in range(0, len(values), TOGETHER):
        some = values[start : start + TOGETHER]
        found += some if _is_plain(some) else map(without_secrets, some)
    return found


def _is_plain(value: Any) -> bool:
    """Return True if JSON certainly has no secret, as usual: one search is faster than reading each text."""
    if not isinstance(value, dict | list | tuple):
        return False
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    # The patterns ignore case, for which some letters beyond ASCII equal ASCII letters.
    if len(text) > PLAIN_BYTES or not text.isascii() or text.count(b"[") + text.count(b"{") > DEPTH_LIMIT:
        return False
    # As a text: `in` of bytes takes five times as long.
    lowered = text.decode().lower()
    for trace in _TRACES:  # noqa: SIM110 - a generator takes twice as long
        if trace in lowered:
            return False
    return True


def _masked(name: str | None, text: str) -> str:
    return MASK if name and text and _is_telling(name) else _cut(text)


def safe_dependency(one: Dependency, safe: Callable[[Any], Any] = without_secrets) -> Dependency:
    """Return a dependency, reported or stored, with secrets in its texts masked."""
    texts = _OF_DEPENDENCIES.intersection(one.__struct_fields__)
    return replace(one, **{name: safe(getattr(one, name)) for name in texts})


@functools.lru_cache(maxsize=4_096)
def _is_telling(name: str) -> bool:
    """Return True if a field of that name holds a secret. Cached, because the same few names repeat."""
    return _FIELD.search(name) is not None


def _names_a_scheme(lowered: str) -> bool:
    return "bearer" in lowered or "basic" in lowered


def _cut(text: str) -> str:
    # A page of a list has thousands of texts, and hardly one of them has any of these: looking for a character first
    # takes a tenth of the time of the patterns.
    if "=" in text:
        text = _PARAMETER.sub(lambda found: f"{found[1]}={MASK}" if _is_telling(found[1]) else found[0], text)
    if "@" in text:
        text = _USER.sub(f"{MASK}@", text)
    if len(text) >= SHORTEST_SCHEME and _names_a_scheme(text.lower()):
        text = _SCHEME.sub(rf"\1 {MASK}", text)
    return text
