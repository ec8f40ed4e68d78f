"""URLs: reads a URL, shows it without secrets, and compares origins.

Promises: `shown` contains neither user, password, query nor fragment, which may be secret. If a URL is not valid, the
error does not repeat these parts. Pure.
"""

from functools import lru_cache
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.http.address_ranges import literal

MAX_URL_CHARS = 8_192
KEPT_URL_CHARS = 400
"""The longest URL whose target is cached for the next request."""
_PORTS = {"http": 80, "https": 443}
# The characters that RFC 3986 allows in a path and a query; all others are percent-encoded as UTF-8.
_AS_IT_IS = "!$%&'()*+,-./:;=?@[]_~"


class Target(Struct, frozen=True, gc=False):
    """The parts of a URL: where to connect, and what to send there."""

    scheme: str
    host: str
    """The host in lower case, in the form that is looked up; an address in its usual form."""
    port: int
    path: str
    """Path and query, in the form that is sent."""
    host_header: str
    url: str
    """The URL without user, password and fragment."""
    credentials: str
    """"user:password" of the URL; empty if it has none."""
    is_literal: bool
    """Whether the host is an address and not a name."""
    shown: str
    """The URL for people: without user, password, query and fragment."""

    @property
    def is_secure(self) -> bool:
        """True for HTTPS."""
        return self.scheme == "https"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return (self.scheme, self.host, self.port)

    def __repr__(self) -> str:
        return f"<Target {self.shown}>"


def shown(url: str) -> str:
    """Return the URL for people: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "(an unreadable URL)"
    return f"{parts.scheme}://{host}{port}{parts.path}{'?…' if parts.query else ''}"[:300]


def target_of(url: str) -> Target:
    """Read a URL; raise `BadInput` if it is not an http or https URL with a host."""
    # A long URL most likely contains values of one request: caching it would only take up room.
    return _kept_target(url) if len(url) <= KEPT_URL_CHARS else _target(url)


@lru_cache(maxsize=16_384)
def _kept_target(url: str) -> Target:
    return _target(url)


def _target(url: str) -> Target:
    parts = _parts(url)
    host, port = _host(parts), parts.port or _PORTS[parts.scheme]
    named = f"[{host}]" if ":" in host else host
    host_header = named if port == _PORTS[parts.scheme] else f"{named}:{port}"
    path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_AS_IT_IS)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    whole = f"{parts.scheme}://{host_header}{path}"
    return Target(
        scheme=parts.scheme,
        host=host,
        port=port,
        path=path,
        host_header=host_header,
        url=whole,
        credentials=f"{user}:{password}" if "@" in parts.netloc else "",
        is_literal=literal(host) is not None,
        shown=shown(whole),
    )


def joined(base: str, location: str) -> str:
    """Return the URL of `location`, which may be relative to `base` (RFC 9110, 10.2.2), without the fragment."""
    try:
        return urljoin(base, location.strip()).split("#", 1)[0]
    except ValueError:
        raise BadInput("the URL cannot be read") from None


def is_same_origin(one: Target, other: Target) -> bool:
    """Return True if credentials for `one` may be sent to `other`: scheme, host and port are the same.

    https://host counts as the same origin as http://host: the same server, better protected.
    """
    is_upgrade = one.host == other.host and (one.scheme, one.port, other.scheme, other.port) == (
        "http",
        80,
        "https",
        443,
    )
    return is_upgrade or one.origin == other.origin


def _host(parts: SplitResult) -> str:
    """Return the host in the form that is looked up: ASCII, without a trailing dot; an address in its usual form."""
    host = parts.hostname or ""
    try:
        # Also for addresses: full-width digits become plain ones here, and are an address then.
        host = (host if host.isascii() else host.encode("idna").decode("ascii")).rstrip(".")
    except UnicodeError:
        host = ""
    if not host or host.startswith(".") or ".." in host:
        raise BadInput(f"{shown(parts.geturl())}: its host is not a valid name")
    address = literal(host)
    return host if address is None else str(address)


def _parts(url: str) -> SplitResult:
    if len(url) > MAX_URL_CHARS:
        raise BadInput(f"{shown(url)[:100]}: a URL must have at most {MAX_URL_CHARS} characters")
    if any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise BadInput(f"{shown(url)[:100]}: a URL must not have spaces or control characters in it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        # The error's own text may repeat parts of the URL, which may be secret.
        why = ": its port is out of range" if "out of range" in str(error) else ""
        raise BadInput(f"{shown(url)} cannot be read as a URL{why}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadInput(f"{shown(url)} must be an http or https URL with a host")
    if port == 0:
        raise BadInput(f"{shown(url)}: its port must be between 1 and 65535")
    return parts
