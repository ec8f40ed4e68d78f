"""What must not be printed: credentials of headers, of the environment and of addresses, cut out of every output.

Promises: whatever a remote repeats of them, in an error, a status or a result, comes out as ***. Pure.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MASK = "***"
# Names under which credentials travel, in headers as in queries.
TELLING = re.compile(r"auth|cookie|token|key|secret|passw|signature|credential|session|^sig$|^code$", re.IGNORECASE)
SHORTEST = 4
"""Below that, masking would cut a word out of every text, and protect nothing."""
SHORTEST_ELSEWHERE = 8
"""In headers whose name tells nothing."""
HARMLESS = frozenset(
    {"accept", "accept-language", "cache-control", "content-type", "if-match", "if-none-match", "prefer", "user-agent"}
)


class Secrets:
    """All that this call was given, ready to be cut out."""

    def __init__(self, headers: Mapping[str, str], url: str, more: Iterable[str] = ()) -> None:
        found = {one for name, value in headers.items() for one in _in_header(name, value)}
        found |= {one for one in _in_query(url) if len(one) >= SHORTEST}
        found |= {one for one in more if len(one) >= SHORTEST}
        found |= {quote(one, safe="") for one in found}
        # The longest first: one may be part of another.
        self._found = sorted(found, key=len, reverse=True)

    def masked(self, value: Any) -> Any:
        """The same without them: texts, and texts in lists and dictionaries, names included."""
        if isinstance(value, str):
            for secret in self._found:
                value = value.replace(secret, MASK)
            return value
        if isinstance(value, Mapping):
            return {self.masked(name): self.masked(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked(one) for one in value]
        return value


def _in_header(name: str, value: str) -> set[str]:
    if name.lower() in HARMLESS:
        return set()
    shortest = SHORTEST if TELLING.search(name) else SHORTEST_ELSEWHERE
    parts = {value, value.rpartition(" ")[2], *(_password(value))}
    if "cookie" in name.lower():
        parts |= {one.partition("=")[2].strip() for one in value.split(";")}
    return {part for part in parts if len(part) >= shortest}


def _password(value: str) -> list[str]:
    """What "Basic …" hides: the password alone, and with its user."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [pair, pair.partition(":")[2]]


def _in_query(url: str) -> set[str]:
    try:
        query = urlsplit(url).query
    except ValueError:
        return set()
    found = {value for name, value in parse_qsl(query) if TELLING.search(name)}
    return found | {unquote(one) for one in found}
