"""ETag and Last-Modified: ask only for what has changed. A server that knows nothing has changed answers 304.

    validator = Validator.of(answer)                      kept with what was read
    answer = await client.send(validator.on(request))
    if answer.is_unchanged: …                             what was read before still holds

Pure.
"""

from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from everpoll.http.contract import Answer, Request
from everpoll.http.headers import is_sendable

MAX_CHARS = 1_000
"""Characters of an ETag that is kept and sent back; a longer ETag is ignored."""


class Validator(Struct, frozen=True, gc=False):
    """What a server calls the version of its answer."""

    etag: str = ""
    last_modified: str = ""

    @classmethod
    def of(cls, answer: Answer) -> Self | None:
        """Return the validator of a 200; None where it has none that can be sent back."""
        if answer.status != 200:
            return None
        etag, modified = (_usable(answer.headers.first(name)) for name in ("etag", "last-modified"))
        return cls(etag, modified) if etag or modified else None

    def on(self, request: Request) -> Request:
        """Return the request with the condition; unchanged where the user set a condition already."""
        if any(name.lower() in ("if-none-match", "if-modified-since") for name in request.headers):
            return request
        # An ETag is exact; the date has a resolution of a second, and counts only where there is no ETag.
        condition = {"If-None-Match": self.etag} if self.etag else {"If-Modified-Since": self.last_modified}
        return replace(request, headers={**request.headers, **condition})


def _usable(value: str) -> str:
    return value if len(value) <= MAX_CHARS and is_sendable(value) and "${" not in value else ""
