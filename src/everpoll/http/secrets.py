"""Secrets: masks the credentials of headers and addresses in everything that a remote repeats.

Promises: a secret becomes ***, whether it is plain, quoted as in a URL, or escaped as in JSON (`\\/`). For "Basic …",
the decoded user and password are masked, too; for a cookie, each of its values. The cost grows only with the length of
the body. Pure.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MASK = "***"
DEPTH_LIMIT = 200
"""How many levels of JSON are shown: deeper JSON could not be encoded if the stack is partly used already."""
CUT = "…"
# Names of headers and query parameters that contain credentials.
TELLING = re.compile(r"auth|cookie|token|key|secret|passw|signature|credential|session|^sig$|^code$", re.IGNORECASE)
SHORTEST = 4
"""The shortest secret: masking shorter values would remove words from texts, and protect nothing."""
SHORTEST_ELSEWHERE = 8
"""The shortest secret in a header whose name does not look like a credential."""
HARMLESS = frozenset(
    {
        "accept",
        "accept-language",
        "anthropic-version",
        "cache-control",
        "content-type",
        "idempotency-key",
        "if-match",
        "if-none-match",
        "prefer",
        "repeatability-first-sent",
        "repeatability-request-id",
        "user-agent",
        "x-ms-client-request-id",
    }
)
# Checked first: most values are texts or numbers, and the check for a Mapping is slow.
_NUMBERS = frozenset({int, float, bool, type(None)})
_MAPPINGS = (dict, Mapping)
_HOLDERS = (list, tuple, *_MAPPINGS)


class Secrets:
    """The secrets of a request, ready to be masked in its answer."""

    def __init__(self, headers: Mapping[str, str], url: str = "", more: Iterable[str] = ()) -> None:
        found = {one for name, value in headers.items() for one in _in_header(name, value)}
        found |= {one for one in _in_address(url) if len(one) >= SHORTEST}
        found |= {one for one in more if len(one) >= SHORTEST}
        found |= {quote(one, safe="") for one in found}
        # The longest first: one may be part of another.
        self._found = sorted(found, key=len, reverse=True)
        self._escaped = re.compile("|".join(map(_json_pattern, self._found))) if self._found else None
        self._in_bytes = sorted({form for one in self._found for form in _as_bytes(one)}, key=len, reverse=True)

    def masked(self, value: Any) -> Any:
        """Mask the secrets in all texts of a value, in lists and in dictionaries with their keys, at any depth."""
        return rewritten(value, lambda _, text: self._cut(text))

    def masked_body(self, body: bytes) -> bytes:
        """Mask the secrets in a body, as plain text and as JSON usually writes them."""
        # No regular expression here, because a remote may send a body of 8 MiB.
        for secret in self._in_bytes:
            if secret in body:
                body = body.replace(secret, MASK.encode())
        return body

    def _cut(self, text: str) -> str:
        for secret in self._found:
            text = text.replace(secret, MASK)
        # Slower, and needed only for JSON inside a text.
        return self._escaped.sub(MASK, text) if self._escaped is not None and "\\" in text else text


def rewritten(value: Any, change: Callable[[str | None, str], str], levels: int | None = None) -> Any:
    """Return a copy of JSON with changed texts, cut below `levels`; None: at any depth.

    `change` gets the name of the field and its text; for a field's name itself, None and the name.
    """
    # A list instead of recursion, because JSON may be nested deeper than the interpreter's stack.
    top: list[Any] = [value]
    holders: list[tuple[int, dict[Any, Any] | list[Any]]] = [(0, top)]
    while holders:
        depth, holder = holders.pop()
        for place, one in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if type(one) in _NUMBERS:
                continue
            if isinstance(one, str):
                holder[place] = change(place if isinstance(place, str) else None, one)
            elif depth == levels and isinstance(one, _HOLDERS):
                holder[place] = CUT
            elif isinstance(one, _MAPPINGS):
                named = {change(None, name) if isinstance(name, str) else name: inner for name, inner in one.items()}
                holder[place] = named
                holders.append((depth + 1, named))
            elif isinstance(one, list | tuple):
                holder[place] = listed = list(one)
                holders.append((depth + 1, listed))
    return top[0]


def sensitive(headers: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the headers that may hold a secret."""
    return frozenset((name, value) for name, value in headers.items() if _in_header(name, value))


def _json_pattern(secret: str) -> str:
    """Return a pattern for every form in which JSON may write a secret."""
    return "".join(rf"(?:{re.escape(char)}|\\{re.escape(char)}|\\u(?i:{ord(char):04x}))" for char in secret)


def _as_bytes(secret: str) -> set[bytes]:
    """Return a secret in UTF-8, in Latin-1, and in the forms of JSON: escaped letters or not, `/` escaped or not."""
    texts = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    texts |= {text.replace("/", "\\/") for text in texts}
    forms = {text.encode("utf-8", "surrogatepass") for text in texts}
    return forms | {text.encode("latin-1", "ignore") for text in texts if text.isprintable()} - {b""}


def _in_header(name: str, value: str) -> set[str]:
    if name.lower() in HARMLESS:
        return set()
    shortest = SHORTEST if TELLING.search(name) else SHORTEST_ELSEWHERE
    parts = {value, value.rpartition(" ")[2], *(_password(value))}
    if "cookie" in name.lower():
        parts |= {one.partition("=")[2].strip() for one in value.split(";")}
    return {part for part in parts if len(part) >= shortest}


def _password(value: str) -> list[str]:
    """Return the decoded user and password of "Basic …", together and the password alone."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [pair, pair.partition(":")[2]]


def _in_address(url: str) -> set[str]:
    """Return the secrets in a URL: in its query, its fragment, and before the @, even without https://."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        pairs = parse_qsl(parts.query) + parse_qsl(parts.fragment)
    except ValueError:
        return set()
    found = {value for name, value in pairs if TELLING.search(name)}
    user, at, _ = parts.netloc.rpartition("@")
    found |= {user, user.partition(":")[2]} if at else set()
    return found | {unquote(one) for one in found}
