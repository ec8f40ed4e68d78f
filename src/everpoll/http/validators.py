"""Validators (ETag and Last-Modified): request content only if it has changed; else the server answers 304.

    validator = Validator.of(answer)                      keep it with the content
    answer = await client.send(validator.on(request))
    if answer.is_unchanged: …                             the content that you have is current


Pure.
"""

from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from everpoll.http.contract import Answer, Request
from everpoll.http.headers import is_sendable

MAX_CHARS = 1_000
"""The longest ETag that is kept and sent back, in characters."""


class Validator(Struct, frozen=True, gc=False):
    """The version of an answer, as its server names it."""

    etag: str = ""
    last_modified: str = ""

    @classmethod
    def of(cls, answer: Answer) -> Self | None:
        """Return the validator of a 200; None if it has none that can be sent back."""
        if answer.status != 200:
            return None
        etag, modified = (_sendable_or_empty(answer.headers.first(name)) for name in ("etag", "last-modified"))
        return cls(etag, modified) if etag or modified else None

    def on(self, request: Request) -> Request:
        """Return the request with the condition; unchanged if the user has set a condition already."""
        if any(name.lower() in ("if-none-match", "if-modified-since") for name in request.headers):
            return request
        # An ETag is exact. The date has a resolution of a second, so it is used only without an ETag.
        condition = {"If-None-Match": self.etag} if self.etag else {"If-Modified-Since": self.last_modified}
        return replace(request, headers={**request.headers, **condition})


def _sendable_or_empty(value: str) -> str:
    return value if len(value) <= MAX_CHARS and is_sendable(value) and "${" not in value else ""
