"""An HTTP response as a value, whichever client received it.

A body is JSON, not JSON, or JSON that cannot be read. The last is a case of its own, because it proves nothing. Pure.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from everpoll.http.urls import shown

_BOM = b"\xef\xbb\xbf"
_UNREAD: Any = object()
_UNREADABLE: Any = object()
# With one of these types, a body that begins like JSON and is not valid counts as broken JSON; text/csv does not.
_MAY_BE_JSON = frozenset({"", "text/plain", "application/octet-stream"})


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Response:
    """An answer: `Response(200, {"Retry-After": "5"}, b"{}")`; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    """The URL that answered, after redirects; relative locations start from it."""
    received_at: float
    """Epoch seconds, for dates in headers: judging reads no clock."""
    peer: str = field(compare=False)
    """The IP address that answered; empty if the client does not tell. It decides where redirects may lead."""
    _json: Any = field(compare=False)

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        url: str = "",
        received_at: float | None = None,
        peer: str = "",
    ) -> None:
        lowered = {name.lower(): value for name, value in (headers or {}).items()}
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "headers", lowered)
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "received_at", time.time() if received_at is None else received_at)
        object.__setattr__(self, "peer", peer)
        object.__setattr__(self, "_json", _UNREAD)

    def __repr__(self) -> str:
        return f"<Response {self.status} of {len(self.body)} bytes from {shown(self.url)}>"

    @property
    def content_type(self) -> str:
        """The content type in lower case, without parameters; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """Return the body as JSON; None if it is empty or not valid JSON. It is decoded once."""
        if self._json is _UNREAD:
            object.__setattr__(self, "_json", _decoded(self.body))
        return None if self._json is _UNREADABLE else self._json

    def fields(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty one if it is anything else."""
        body = self.json()
        return body if isinstance(body, dict) else {}

    @property
    def is_unreadable(self) -> bool:
        """True if the body should be JSON and is not valid: cut off, in another encoding, with NaN in it.

        It should be JSON if its type says so, or if its type says nothing and it begins with { or [. JSON lines count
        as text, unless their type says JSON.
        """
        if not self.body.strip() or self.json() is not None or self._json is not _UNREADABLE:
            return False
        if self.content_type.endswith(("/json", "+json")):
            return True
        begins = self.body.removeprefix(_BOM).lstrip()[:1] in (b"{", b"[")
        return begins and self.content_type in _MAY_BE_JSON and not _is_lines(self.body)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return _UNREADABLE


def _is_lines(body: bytes) -> bool:
    first, _, rest = body.removeprefix(_BOM).lstrip().partition(b"\n")
    return bool(rest.strip()) and _decoded(first) is not _UNREADABLE
