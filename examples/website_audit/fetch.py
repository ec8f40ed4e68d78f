"""Fetch one page, the way a service must that gets its addresses from unknown users.

Promises: http and https only; at most so many redirects, bytes and seconds in all; every host is resolved once, every
one of its addresses is looked at, and the connection goes to one of those. Addresses that are not public (this machine,
the network it stands in) are refused unless `$AUDIT_PRIVATE_HOSTS` is 1. What is wrong with an address for good is
`BadAddress`; what may be better later (refused, timed out, 5xx) is `SiteDown`.
"""

import http.client
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from examples.website_audit.score import Answer

HEADERS = {"User-Agent": "everpoll-website-audit", "Accept": "text/html,*/*;q=0.5", "Accept-Encoding": "identity"}
REDIRECTS = {301, 302, 303, 307, 308}
URL_CHARS = "/%:@!$&'()*+,;=~-._"
HTML_TYPES = {"text/html", "application/xhtml+xml"}


class BadAddress(ValueError):
    """Not an address that is ever fetched."""


class SiteDown(ConnectionError):
    """No usable answer, this time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a stranger is put up with."""

    timeout_s: float = 10.0
    """For everything, redirects included."""
    size_bytes: int = 2_000_000
    redirects: int = 5


def fetch(url: str, limits: Limits | None = None) -> tuple[Answer, str]:
    """What the server said, and the text of the page."""
    limits = limits or Limits()
    began = time.monotonic()
    deadline = _Deadline(began + limits.timeout_s)
    here = url.strip()
    for redirects in range(limits.redirects + 1):
        with _visit(here, deadline) as (reply, connected):
            location = reply.headers.get("Location")
            if location and reply.status in REDIRECTS:
                here = urljoin(here, location)
                continue
            content, is_cut = _content(reply, connected, limits.size_bytes, deadline)
        answer = Answer(
            url=here,
            status=reply.status,
            size_bytes=len(content),
            is_cut=is_cut,
            took_s=round(time.monotonic() - began, 3),
            redirects=redirects,
        )
        return answer, _text(reply, content)
    raise BadAddress(f"{url}: more than {limits.redirects} redirects; the last leads to {here}")


class _Deadline:
    """One instant for everything."""

    def __init__(self, until: float) -> None:
        self._until = until

    @property
    def left_s(self) -> float:
        """For the next thing that may block."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


@contextmanager
def _visit(url: str, deadline: _Deadline) -> Iterator[tuple[http.client.HTTPResponse, socket.socket]]:
    """Ask one host; whatever breaks in the block, too, is that the site is down."""
    parts = _checked(url)
    try:
        with _connected(parts, deadline) as connected:
            asking = http.client.HTTPConnection(parts.hostname or "", parts.port)
            asking.sock = connected
            asking.request("GET", _target(parts), headers=HEADERS)
            with asking.getresponse() as reply:
                if reply.status >= 500:
                    raise SiteDown(f"{url}: answers {reply.status}")
                yield reply, connected
    except SiteDown:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise SiteDown(f"{url}: {_said(error)}") from None


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and url.isprintable():
            return parts
    except ValueError:
        pass
    raise BadAddress(f"{url!r} is not a web address: write https://…")


def _connected(parts: SplitResult, deadline: _Deadline) -> socket.socket:
    """To an address that was looked at: resolving the name once more would let its server change its mind."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    failure: OSError | None = None
    for address in _addresses(host, port):
        try:
            connected = socket.create_connection((address, port), deadline.left_s)
            if parts.scheme == "https":
                return ssl.create_default_context().wrap_socket(connected, server_hostname=host)
            return connected
        except OSError as error:
            failure = error
    raise failure or OSError("has no address")


def _addresses(host: str, port: int) -> list[str]:
    """Of this host, once none of them is forbidden."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise BadAddress(f"{host!r} is not the name of a host") from None
    addresses = [str(one[4][0]).partition("%")[0] for one in found]
    if os.environ.get("AUDIT_PRIVATE_HOSTS") != "1":
        for one in addresses:
            if not ipaddress.ip_address(one).is_global:
                raise BadAddress(f"{host} is {one}, which is not public; set AUDIT_PRIVATE_HOSTS=1 to audit it anyway")
    return addresses


def _target(parts: SplitResult) -> str:
    path = quote(parts.path or "/", safe=URL_CHARS)
    return f"{path}?{quote(parts.query, safe=URL_CHARS + '?')}" if parts.query else path


def _content(
    reply: http.client.HTTPResponse, connected: socket.socket, limit: int, deadline: _Deadline
) -> tuple[bytes, bool]:
    """The body up to the cap, and whether there was more."""
    read = bytearray()
    while len(read) <= limit:
        # Before every piece: a server that sends a byte a second never runs into the timeout of its socket.
        connected.settimeout(deadline.left_s)
        piece = reply.read1(65_536)
        if not piece:
            return bytes(read), False
        read += piece
    return bytes(read[:limit]), True


def _text(reply: http.client.HTTPResponse, content: bytes) -> str:
    """As text, where it is a page; what cannot be decoded is replaced."""
    if reply.headers.get_content_type() not in HTML_TYPES:
        return ""
    try:
        return content.decode(reply.headers.get_content_charset("utf-8"), errors="replace")
    except LookupError:
        return content.decode(errors="replace")


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "took too long"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
