"""Addresses of databases of any kind: shows them to people and in logs without their passwords.

Promises of `masked`: no part of a password is shown, also where the address is malformed, has no scheme, is written in
the keywords of libpq, or where the password has `@`, `/`, `?` or `#` in it that were not percent-encoded. When in doubt
it hides more. Pure.
"""

import re

HIDDEN = "***"
SHOWN_CHARS = 300
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:/{1,2}")
# Up to the end of the text: the value may contain any separator, so its own end is unknown.
_NAMED = re.compile(r"(\w*(?:pass|pwd|secret|token|key)\w*\s*=).*", re.IGNORECASE | re.DOTALL)
_USER = re.compile(r"[\w.%+~-]*")
_PORT = re.compile(r":\d{1,5}(?=[/?,]|$)")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]*\]")


def masked(url: str) -> str:
    """Return the address without its password."""
    shown = url
    if not url.startswith(("sqlite:///", "memory:")) or "?" in url:
        shown = _NAMED.sub(rf"\1{HIDDEN}", url)
    if not shown.startswith(("sqlite:///", "memory:")):
        found = _SCHEME.match(shown)
        scheme = found[0] if found else ""
        shown = scheme + _without_password(shown[len(scheme) :])
    return shown[:SHOWN_CHARS]


def _without_password(rest: str) -> str:
    """Return the part after the scheme, with the text between the user and the last @ hidden."""
    head, at, tail = rest.rpartition("@")
    if at:
        user, colon, _ = head.partition(":")
        return f"{user if _USER.fullmatch(user) else HIDDEN}{f':{HIDDEN}' if colon else ''}@{tail}"
    hosts = re.split(r"[/?]", rest, maxsplit=1)[0]
    # A text after a colon that is not a port may be a password, with the host left out.
    return rest if ":" not in _PORT.sub("", _IPV6.sub("", hosts)) else f"{hosts.partition(':')[0]}:{HIDDEN}"
