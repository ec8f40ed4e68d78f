"""URLs from a remote: made absolute, and refused if they are not safe to follow.

Pure. A remote may name the URL of the next look. It may not make us leave HTTPS, read a file, or send the user's
credentials to another host.
"""

from urllib.parse import quote

from everpoll.errors import BadInput, Hopeless
from everpoll.http.urls import Target, is_same_origin, shown, target_of
from everpoll.http.urls import joined as joined_url


class Refused(Hopeless):
    """The remote sent something that is refused: a link to plain HTTP or another scheme, a loop, a huge body."""


def resolved(base: str, location: str) -> str:
    """Return where `location` leads from `base`: it may be relative (RFC 9110, 10.2.2). The fragment is not sent."""
    try:
        return joined_url(base, location)
    except BadInput:
        raise Refused(f"{shown(base)} leads to a URL that is not valid") from None


def checked(url: str, *, home: str) -> str:
    """Return the URL; raise `Refused` if it leaves HTTPS. `home` is the URL that the user named."""
    if _target(url).scheme == "http" and _target(home).scheme == "https":
        raise Refused(f"{shown(home)} leads to {shown(url)}: from HTTPS to plain HTTP, which is not followed")
    return url


def may_carry_credentials(url: str, *, home: str, trusted: frozenset[str] = frozenset()) -> bool:
    """Return True if credentials of the user for `home` may be sent to this URL."""
    target, origin = _target(url), _target(home)
    if target.host in trusted:
        return target.is_secure or not origin.is_secure
    return is_same_origin(origin, target)


def joined(base: str, *segments: str) -> str:
    """Return a URL below `base`; raise `Refused` for a segment that would lead elsewhere."""
    path = "/".join(quote(segment, safe="") for segment in segments)
    if any(segment in ("", ".", "..") for segment in segments):
        raise Refused(f"{path!r} is not a path below {shown(base)}")
    return f"{base.rstrip('/')}/{path}"


def _target(url: str) -> Target:
    try:
        target = target_of(url)
    except BadInput as error:
        raise Refused(str(error)) from None
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Refused(f"{shown(url)} has a user or password in it; send credentials with headers=")
    return target
