"""The contract of this package: a request, its answer, and the errors if no answer came.

    answer = await client.send(Request("https://api.example.com/health", headers={"X-Api-Key": "${API_KEY}"}))

`send` ends within `timeout_s`, whatever the other side does, in one of these ways:

    Answer       an answer came, with any status
    NotReached   no usable answer came: `kind` is one of eight, the message explains it
    NotAsked     this process could not send the request: no file descriptor is left, or an environment variable is
                 missing
    cancellation passes through, and closes the connection

Promises: no repr, message or traceback of these contains a header's value, a user or password of a URL, or a query.
"""

import math
import re
import ssl
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from everpoll.errors import BadInput, EverpollError
from everpoll.http.headers import Headers, sendable
from everpoll.http.urls import shown, target_of

TIMEOUT_S = 10.0
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_REDIRECTS = 10
_METHOD = re.compile(r"(?!CONNECT$)[A-Z]{1,20}")


class Kind(StrEnum):
    """Why no answer came."""

    REFUSED = "refused"
    """The connection was refused, reset, or closed before the answer was complete."""
    TIMED_OUT = "timed_out"
    DNS = "dns"
    """The host's name has no address."""
    TLS = "tls"
    """The handshake failed: the certificate expired, belongs to another host, or is not trusted."""
    REDIRECT = "redirect"
    """Too many redirects, a redirect loop, or a redirect to something that is not an http or https URL."""
    TOO_LARGE = "too_large"
    """The body is larger than its limit."""
    PROTOCOL = "protocol"
    """The answer is not valid HTTP, has too many headers, or its body cannot be unpacked."""
    ADDRESS = "address"
    """The address is not allowed: it is private or link-local, and the user did not name it."""


class NotReached(EverpollError, OSError):
    """No answer came; the message says why, without secrets. `errno` is the operating system's code, or None."""

    def __init__(self, reason: str, kind: Kind, errno: int | None = None, *, is_unsent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.errno = errno
        self.is_unsent = is_unsent
        """No connection was made, so the other side has certainly not received the request. False: it may have."""

    def __reduce__(self) -> Any:
        return (partial(type(self), is_unsent=self.is_unsent), (self.reason, self.kind, self.errno))

    def __str__(self) -> str:
        return self.reason


class NotAsked(EverpollError):
    """This process could not send the request, so nothing is known about the other side."""


class Reach(StrEnum):
    """Which addresses a request may go to. Cloud metadata and link-local ones must be written in a NAMED URL."""

    NAMED = "named"
    """The user named the host: it may be private."""
    INSIDE = "inside"
    """A remote at a private address named the host: it may be private."""
    PUBLIC = "public"
    """A remote named the host: every address of it must be public."""
    PUBLIC_PART = "public_part"
    """A host that answered from a public address redirected to itself: only its public addresses are allowed."""


class Tls(Struct, frozen=True, kw_only=True):
    """How to verify the other side, and the certificate of this side. The paths are those of PEM files."""

    ca_file: str | None = None
    """The trusted authorities, instead of the system's."""
    certificate_file: str | None = None
    key_file: str | None = None
    """The key of `certificate_file`, unless that file has it."""
    server_name: str | None = None
    """The name that the certificate must have, if it is not the URL's host."""


class Request(Struct, frozen=True):
    """One request. `Request("https://api.example.com/health")` is a GET."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    """`${NAME}` in a value is read from the environment when the request is sent."""
    body: bytes | None = None
    timeout_s: float = TIMEOUT_S
    """The limit for everything: name look-up, connecting, TLS, redirects, and the whole body."""
    max_body_bytes: int = MAX_BODY_BYTES
    """The largest body, after decompression."""
    fresh: bool = False
    """Use a new connection, and close it afterwards."""
    follow_redirects: bool = True
    """Follow up to 10 redirects of GET and HEAD. For other methods, the redirect is the answer."""
    reach: Reach = Reach.NAMED
    tls: Tls | ssl.SSLContext | None = None
    """None: the system's authorities are trusted."""

    def __post_init__(self) -> None:
        target_of(self.url)
        sendable(self.headers)
        if not _METHOD.fullmatch(self.method):
            raise BadInput(f"method={self.method[:40]!r}: write GET, HEAD, POST, PUT, PATCH, DELETE or the like")
        if not math.isfinite(self.timeout_s) or self.timeout_s <= 0:
            raise BadInput(f"timeout_s={self.timeout_s!r}: must be a number of seconds above 0")
        if self.max_body_bytes < 0:
            raise BadInput(f"max_body_bytes={self.max_body_bytes!r}: must be 0 or more")

    def __repr__(self) -> str:
        names = f" with {', '.join(sorted(self.headers))}" if self.headers else ""
        return f"<Request {self.method} {shown(self.url)}{names}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)


class Answer(Struct, frozen=True, gc=False):
    """An answer, with any status."""

    status: int
    headers: Headers
    """Names in lower case, look-up in any case; values of repeated headers joined with ", "."""
    body: bytes
    """The decompressed body; still compressed if `encoding` is not empty."""
    url: str
    """The URL that answered, after redirects; without user and password."""
    address: str
    """The IP address that answered; empty behind a proxy."""
    latency_s: float
    """The time from the call to the last byte, everything included."""
    certificate_expires_at: float | None = None
    """Epoch seconds; None without TLS."""
    is_truncated: bool = False
    """True: the body was too large, and `body` is its beginning. Only for errors (status 400 and above)."""
    encoding: str = ""
    """The Content-Encoding that `body` still has, because this client cannot decode it."""

    @property
    def is_unchanged(self) -> bool:
        """True for 304: the content named by If-None-Match or If-Modified-Since has not changed."""
        return self.status == 304

    @property
    def content_type(self) -> str:
        """The content type in lower case, without parameters; empty if there is none."""
        return self.headers.first("content-type").partition(";")[0].strip().lower()

    def __repr__(self) -> str:
        return f"<Answer {self.status} of {len(self.body)} bytes from {shown(self.url)}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)


class Client(Protocol):
    """The contract of every client. One client serves any number of event loops."""

    async def send(self, request: Request) -> Answer:
        """Send a request and return its answer; raise `NotReached` if none came, `NotAsked` if it could not be sent."""
        ...

    async def close(self) -> None:
        """Close the connections of this event loop, within a second. May be repeated; `send` opens new ones."""
        ...
