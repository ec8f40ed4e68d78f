"""Addresses of the inside: this machine, its networks, the metadata of a cloud. A remote of the outside leads to none.

Pure, but for `addresses_of`, which asks the resolver. What is connected to is what was looked at here: a name that
answers something else a moment later gains nothing.
"""

import ipaddress
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
# A network that only knows IPv6 reaches IPv4 through these.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class Address(NamedTuple):
    """One of a host's, as a socket wants it."""

    family: int
    place: tuple[Any, ...]

    @property
    def is_inner(self) -> bool:
        """Loopback, private, link-local, multicast, reserved: not out there."""
        found = _literal(str(self.place[0]))
        return found is None or _is_inner(found)


def addresses_of(url: str) -> list[Address]:
    """All addresses of its host, in the resolver's order; a `socket.gaierror` where there is none."""
    parts = urlsplit(url)
    found = socket.getaddrinfo(parts.hostname, parts.port or _PORTS[parts.scheme], type=socket.SOCK_STREAM)
    return list(dict.fromkeys(Address(family, place) for family, _, _, _, place in found))


def names_the_inside(url: str) -> bool:
    """Whether the URL itself says so, without asking anybody: `http://10.0.0.5/`, `http://localhost/`."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    found = _literal(host)
    return found is not None and _is_inner(found)


def _literal(host: str) -> _Ip | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        # 127.1 and 2130706433 are addresses, too, to whoever connects.
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _is_inner(address: _Ip) -> bool:
    meant = _embedded(address) or address
    return not meant.is_global or meant.is_multicast


def _embedded(address: _Ip) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
