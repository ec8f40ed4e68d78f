"""Targets: reads the target of a service, and shows it without secrets.

    http://host/path  https://host/path   an HTTP answer, with or without a health body
    tcp://host:port   tls://host:port     a connection; a connection with a valid certificate
    dns://name                            a name that has an address
    beat:  beat:TOKEN                     a heartbeat: the service calls everpoll, and a late call means down

Promises: an accepted target has everything that a look needs. Any other target raises `BadInput`, which says what to
write. No message and no `shown` text contains a user, a password, a query or a token.
"""

import functools
import re
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.policy import shown

MAX_TARGET_CHARS = 8_192
MAX_HOST_CHARS = 253
"""The longest name in DNS."""
_ACCEPTED = '"https://host/health", "tcp://host:5432", "tls://host:443", "dns://name" or "beat:"'
_PORTS = {"http": 80, "https": 443}
_WITH_PORT = frozenset({"tcp", "tls"})
# A host with a port, a path or both, as browsers and curl accept it. Without "@": that would be a password.
_BARE = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+)(?::\d+)?(?:[/?#][^@]*)?|[\w-]+:\d+(?:[/?#][^@]*)?", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")


class Endpoint(Struct, frozen=True, gc=False):
    """The parts of a target."""

    scheme: str
    host: str
    """In lower case, without brackets; the limit of looks at one host counts by it. Empty for heartbeats."""
    port: int | None
    """None for dns and heartbeats."""
    shown: str
    """The target for people: without user, password, query, fragment and token."""

    @property
    def is_heartbeat(self) -> bool:
        """Whether the service calls everpoll, instead of being called."""
        return self.scheme == "beat"


def endpoint_of(target: object) -> Endpoint:
    """Read a target; raise `BadInput` if it is not valid."""
    if not isinstance(target, str):
        raise BadInput(f"target={shown(target)}: must be text; write {_ACCEPTED}")
    if len(target) > MAX_TARGET_CHARS:
        raise BadInput(f"target of {len(target):,} characters: must have at most {MAX_TARGET_CHARS:,}")
    if " " in target or not target.isprintable():
        raise BadInput(f"target={shown_target(target)!r}: must not have spaces or control characters in it")
    if target[:5].lower() == "beat:":
        return _heartbeat(target)
    parts = _parts(target)
    if parts.scheme == "dns":
        return Endpoint("dns", _host(target, parts), None, shown_target(target))
    return Endpoint(parts.scheme, _host(target, parts), _port(target, parts), shown_target(target))


@functools.lru_cache(maxsize=4_096)
def shown_target(target: str) -> str:
    """Return the target for people, without secrets."""
    if target[:5].lower() == "beat:":
        return "beat:…" if len(target) > 5 else "beat:"
    try:
        parts = urlsplit(target)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "(an unreadable address)"
    named = f"[{host}]" if ":" in host else host
    where = named if port is None else f"{named}:{port}"
    if not parts.netloc:
        # Without a host the text may be anything, a password included.
        return "(no address)"
    return f"{parts.scheme}://{where}{parts.path}{'?…' if parts.query else ''}"[:300]


def _heartbeat(target: str) -> Endpoint:
    token = target[5:]
    if token and not _TOKEN.fullmatch(token):
        raise BadInput(
            'target="beat:…": a token must have 16 to 128 letters, digits, - or _; write "beat:" to have one made'
        )
    return Endpoint("beat", "", None, shown_target(target))


def _parts(target: str) -> SplitResult:
    try:
        parts = urlsplit(target)
        _ = parts.port
    except ValueError:
        raise BadInput(f"target={shown_target(target)!r}: cannot be read; write {_ACCEPTED}") from None
    if parts.scheme not in _PORTS and parts.scheme not in _WITH_PORT and parts.scheme != "dns":
        raise BadInput(_without_scheme(target, parts))
    is_bare = parts.scheme not in _PORTS
    if is_bare and (parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc):
        example = "dns://name" if parts.scheme == "dns" else f"{parts.scheme}://host:port"
        raise BadInput(f"target={shown_target(target)!r}: has more than a host in it; write {example!r}")
    return parts


def _without_scheme(target: str, parts: SplitResult) -> str:
    """Return the message for a target without a scheme: most often the user wrote `host/path` or `host:port`."""
    if parts.netloc or not _BARE.fullmatch(target):
        return f"target={shown_target(target)!r}: has no known scheme; write {_ACCEPTED}"
    likely = f"http://{target}"
    return f"target={shown_target(likely).removeprefix('http://')!r}: has no scheme; write {shown_target(likely)!r}"


def _host(target: str, parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    try:
        # Names beyond ASCII are looked up in their ASCII form, and count as one host with it.
        host = host if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        host = ""
    if not host or len(host) > MAX_HOST_CHARS or host.startswith(".") or ".." in host:
        raise BadInput(f"target={shown_target(target)!r}: has no valid host; write {_ACCEPTED}")
    return host


def _port(target: str, parts: SplitResult) -> int:
    port = parts.port or (None if parts.port == 0 else _PORTS.get(parts.scheme))
    if port is None:
        raise BadInput(
            f"target={shown_target(target)!r}: needs a port from 1 to 65535; write '{parts.scheme}://host:443'"
        )
    return port
