"""Addresses of the inside: this machine, its networks, the metadata of a cloud. A remote of the outside leads to none.

    the address that led there    may lead to
    outside                       addresses outside
    inside                        addresses outside and inside, but not to metadata
    -                             metadata and link-local: only as an address that the user wrote, never by a name

Pure, but for `addresses_of`, which asks the resolver. What is connected to is what was looked at here: a name that
answers something else a moment later gains nothing.
"""

import ipaddress
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
# A network that only knows IPv6 reaches IPv4 through these. The second is the old "IPv4-compatible" form.
_HOLD_IPV4 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
# Local by their standards (RFC 3879, RFC 8215), and global to the standard library.
_LOCAL = (ipaddress.IPv6Network("fec0::/10"), ipaddress.IPv6Network("64:ff9b:1::/48"))
# Where clouds hand out credentials without asking for any. Most are link-local; these are not: AWS over IPv6, Google
# over IPv6, Oracle (two), Alibaba, Azure's host agent, Scaleway, Akamai.
_METADATA = frozenset(
    ipaddress.ip_address(one)
    for one in (
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "192.0.0.192",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:42::42",
        "fd00:a9fe:a9fe::1",
    )
)
_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class Address(NamedTuple):
    """One of a host's, as a socket wants it."""

    family: int
    place: tuple[Any, ...]

    @property
    def is_inner(self) -> bool:
        """Loopback, private, link-local, multicast, reserved: not out there."""
        return is_inner(str(self.place[0]))

    @property
    def is_metadata(self) -> bool:
        """Link-local, or a cloud's metadata elsewhere."""
        found = _literal(str(self.place[0]))
        return found is not None and _is_metadata(found)


class Leader(NamedTuple):
    """What led to a URL: a URL, and the address that answered there, which is empty where it is not known."""

    url: str
    peer: str = ""

    @property
    def host(self) -> str | None:
        """The host of its URL."""
        return urlsplit(self.url).hostname


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


def names_address(url: str) -> bool:
    """Whether the URL's host is an address, and no name."""
    return _literal((urlsplit(url).hostname or "").rstrip(".")) is not None


def names_metadata(url: str) -> bool:
    """Whether the URL itself is that of metadata, or link-local: `http://169.254.169.254/`."""
    found = _literal((urlsplit(url).hostname or "").rstrip("."))
    return found is not None and _is_metadata(found)


def is_inner(address: str) -> bool:
    """Whether an address is inside; one that cannot be read counts as inside."""
    found = _literal(address)
    return found is None or _is_inner(found)


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
    is_local = isinstance(meant, ipaddress.IPv6Address) and any(meant in network for network in _LOCAL)
    return not meant.is_global or meant.is_multicast or is_local or meant in _METADATA


def _is_metadata(address: _Ip) -> bool:
    meant = _embedded(address) or address
    return meant.is_link_local or meant in _METADATA


def _embedded(address: _Ip) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if any(address in network for network in _HOLD_IPV4) and int(address) > 1:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
