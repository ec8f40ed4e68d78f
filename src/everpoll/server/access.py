"""Access: decides which requests are answered, by tokens, the session cookie, Host and Origin.

    no token set      callers on this machine only, under a name of this machine
    token             reads and changes; `Authorization: Bearer …`, or the session cookie of the login page
    read token        reads only

Promises: secrets are compared in constant time, are never taken from a URL, and are in no message. A cookie is signed
with the token and has an end: it survives restarts, and another token makes it void. A page of another site can neither
read nor change anything: its Origin is refused, its cookie is not sent (`SameSite=Strict`), and a name that was made to
point here (DNS rebinding) is not in the list of hosts.
"""

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import Request

from everpoll.errors import BadInput
from everpoll.server.problems import Problem

Role = Literal["read", "write"]
COOKIE = "everpoll_session"
SESSION_S = 7 * 86_400
TOKEN_LIMIT = 1_000
_LOCAL_NAMES = frozenset({"localhost", "testserver"})
"""Names of this machine. In-process test clients use the second one; no public name is a single word."""
_IN_PROCESS = frozenset({"", "testclient", "localhost"})
"""The client names of callers inside this process, and of callers through a Unix socket."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_SESSION = re.compile(r"(read|write)\.(\d{1,12})\.([0-9a-f]{64})")
CHANGING = frozenset({"POST", "PATCH", "DELETE", "PUT"})


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens and hosts that decide what each caller may do."""

    token: str | None = None
    read_token: str | None = None
    read_only: bool = False
    hosts: frozenset[str] | None = None
    """Names under which callers reach this server; None: with a token any name, without one those of this machine."""

    def __post_init__(self) -> None:
        for name, value in (("token", self.token), ("read token", self.read_token)):
            if value is not None and not _is_usable(value):
                raise BadInput(f"the {name} must be 1 to {TOKEN_LIMIT} printable ASCII characters: `everpoll token`")
        if self.token is not None and self.token == self.read_token:
            raise BadInput("the read token must differ from the token, which allows changes")

    @property
    def is_open(self) -> bool:
        """No token is set: callers on this machine need none."""
        return self.token is None and self.read_token is None

    def check_host(self, request: Request) -> None:
        """Refuse a foreign Host, and, without a token, callers on other machines."""
        client = None if request.client is None else request.client.host
        if self.is_open and client is not None and _is_foreign(client):
            raise Problem(403, "without a token only callers on this machine are answered: set $EVERPOLL_TOKEN")
        written = request.headers.getlist("host")
        # Refuse several Host headers: a proxy may have checked another one.
        found = _HOST.fullmatch(written[0]) if len(written) == 1 else None
        if found is None or not self._is_known(found[1].strip("[]").lower().rstrip(".")):
            raise Problem(
                400, "the Host of the request is not a name of this server: allow it with --allow-host, or hosts="
            )

    def _is_known(self, host: str) -> bool:
        address = address_of(host)
        if self.hosts is not None and host in self.hosts:
            return True
        if address is not None:
            # An address needs no look-up, so DNS rebinding is not possible.
            return address.is_loopback or not self.is_open
        return host in _LOCAL_NAMES or host.endswith(".localhost") or (self.hosts is None and not self.is_open)

    def check_origin(self, request: Request) -> None:
        """Refuse a change that a page of another site has sent."""
        if request.method not in CHANGING:
            return
        origin = request.headers.get("origin")
        if origin is not None and _netloc(origin) != request.headers.get("host", "").lower():
            raise Problem(403, "the Origin of the request is another site")
        if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            raise Problem(403, "the request comes from a page of another site")

    def role_of(self, request: Request, now: float) -> Role | None:
        """Return the role of the caller; None: the caller may do nothing."""
        role: Role | None = "write" if self.is_open else self._by_header(request) or self._by_cookie(request, now)
        return "read" if role is not None and self.read_only else role

    def is_logged_in(self, request: Request) -> bool:
        """Return True if the caller's rights come from its cookie, so that it can log out."""
        return not self.is_open and self._by_header(request) is None

    def role_for(self, given: str) -> Role | None:
        """Return the role of a token; None if it is not valid."""
        # Always compare both, so that the time tells nothing about the tokens.
        is_token = _equal(given, self.token)
        is_read_token = _equal(given, self.read_token)
        return "write" if is_token else "read" if is_read_token else None

    def session(self, role: Role, now: float) -> str:
        """Return the value of a session cookie, which replaces a token."""
        end = int(now) + SESSION_S
        return f"{role}.{end}.{self._signature(role, end)}"

    def _by_header(self, request: Request) -> Role | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return self.role_for(given.strip()) if scheme.lower() == "bearer" else None

    def _by_cookie(self, request: Request, now: float) -> Role | None:
        found = _SESSION.fullmatch(request.cookies.get(COOKIE, ""))
        if found is None:
            return None
        role: Role = "write" if found[1] == "write" else "read"
        end = int(found[2])
        is_ours = hmac.compare_digest(found[3], self._signature(role, end))
        return role if is_ours and now < end <= now + SESSION_S + 1 else None

    def _signature(self, role: Role, end: int) -> str:
        key = self.token if role == "write" else self.read_token
        if key is None:
            # Without a token there is no signature; this text has the same length as one.
            return "-" * 64
        return hmac.new(key.encode(), f"everpoll session {role} {end}".encode(), hashlib.sha256).hexdigest()


def own_hosts(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of a server that listens on `host`: the given names, and those of this machine."""
    names = {host, socket.gethostname(), socket.getfqdn(), *more}
    return frozenset(name.strip("[]").lower().rstrip(".") for name in names if name)


def is_loopback(host: str) -> bool:
    """Return True if only callers on this machine reach that address."""
    address = address_of(host.strip("[]"))
    return host == "localhost" if address is None else address.is_loopback


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a text as an address; None if it is not one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


def _is_foreign(client: str) -> bool:
    """Return True if a caller may be on another machine; a proxy may pass on a text that is not an address."""
    address = address_of(client)
    return client not in _IN_PROCESS if address is None else not address.is_loopback


def _netloc(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in {"http", "https"} else None


def _equal(given: str, token: str | None) -> bool:
    if token is None:
        return False
    return hmac.compare_digest(_digest(given), _digest(token))


def _digest(text: str) -> bytes:
    # Digests have the same length, so that the time does not tell the length of the token.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _is_usable(token: str) -> bool:
    return 1 <= len(token) <= TOKEN_LIMIT and token.isascii() and token.isprintable() and token == token.strip()
