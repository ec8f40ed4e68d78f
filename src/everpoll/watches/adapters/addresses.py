"""URLs that a remote hands over: made absolute, shown without secrets, and refused where they lead astray.

Pure. A remote may say where to look next, but not make us leave HTTPS, read a file, or carry the user's credentials to
somebody else.
"""

from urllib.parse import SplitResult, quote, urljoin, urlsplit

from everpoll.errors import Hopeless

_PORTS = {"http": 80, "https": 443}
_LONGEST_CHARS = 8_192


class Refused(Hopeless):
    """The remote led to something that is not done: plain HTTP after HTTPS, another scheme, a circle, a huge body."""


def shown(url: str) -> str:
    """The URL for people: without user, password, query and fragment, which is where secrets travel."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "(an unreadable URL)"
    return f"{parts.scheme}://{host}{port}{parts.path}{'?…' if parts.query else ''}"[:300]


def resolved(base: str, location: str) -> str:
    """Where `location` leads from `base`: it may be relative (RFC 9110, 10.2.2). The fragment is not sent."""
    try:
        return urljoin(base, location.strip()).split("#", 1)[0]
    except ValueError:
        raise Refused(f"{shown(base)} leads to a URL that cannot be read") from None


def checked(url: str, *, home: str) -> str:
    """The URL, if it may be asked on behalf of whoever began at `home`."""
    parts = _parts(url)
    if parts.scheme == "http" and _parts(home).scheme == "https":
        raise Refused(f"{shown(home)} leads to {shown(url)}: from HTTPS to plain HTTP, which is not followed")
    return url


def may_carry_credentials(url: str, *, home: str, trusted: frozenset[str] = frozenset()) -> bool:
    """Whether what identifies the user at `home` may be sent to this URL."""
    target, origin = _parts(url), _parts(home)
    if target.hostname in trusted:
        return target.scheme == "https" or origin.scheme == "http"
    if target.hostname != origin.hostname:
        return False
    # http://host to https://host is the same server, better protected.
    is_upgrade = (origin.scheme, _port(origin), target.scheme, _port(target)) == ("http", 80, "https", 443)
    return is_upgrade or (origin.scheme, _port(origin)) == (target.scheme, _port(target))


def joined(base: str, *segments: str) -> str:
    """A URL below `base`; a segment that a remote or a user named cannot leave it."""
    path = "/".join(quote(segment, safe="") for segment in segments)
    if any(segment in ("", ".", "..") for segment in segments):
        raise Refused(f"{path!r} is no path below {shown(base)}")
    return f"{base.rstrip('/')}/{path}"


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        # Of its words only those that repeat nothing of the URL, which may have secrets in it.
        why = ": its port is out of range" if "out of range" in str(error) else ""
        raise Refused(f"{shown(url)} cannot be read as a URL{why}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise Refused(f"{shown(url)} is no http or https URL with a host")
    if len(url) > _LONGEST_CHARS or any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise Refused(f"{shown(url)[:100]} is too long for a URL, or has spaces or control characters in it")
    if parts.username is not None or parts.password is not None:
        raise Refused(f"{shown(url)} has a user or password in it; send credentials with headers=")
    return parts


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]
