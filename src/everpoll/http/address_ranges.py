"""Address ranges: recognizes private addresses: of this machine, of its networks, and of the metadata of a cloud.

Pure. An IPv6 address that leads to an IPv4 address (mapped, 6to4, NAT64, Teredo) counts as that IPv4 address. All forms
that a resolver or `connect` accepts are read: 127.1, 0x7f000001, 0177.0.0.1 and 2130706433 are 127.0.0.1.
"""

import ipaddress
import socket
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# A network with only IPv6 reaches IPv4 through these prefixes. The second one is the old "IPv4-compatible" form.
_HOLD_IPV4 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
# Local, or without a route, by RFC 3879, RFC 8215 and RFC 4291; the standard library takes them for global.
_LOCAL = tuple(ipaddress.IPv6Network(one) for one in ("fec0::/10", "64:ff9b:1::/48", "::/96"))
# At these addresses, clouds hand out credentials to every caller. Most such addresses are link-local; these are not:
# AWS over IPv6, Google over IPv6, Oracle (two), Alibaba, Azure's host agent, Scaleway, Akamai.
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


class IpAddress(NamedTuple):
    """One address of a host, in the form that sockets take."""

    family: int
    place: tuple[Any, ...]

    @property
    def ip(self) -> str:
        """The address itself, without its port."""
        return str(self.place[0])


@lru_cache(maxsize=16_384)
def literal(host: str) -> Ip | None:
    """Return the host of a URL as an address; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        # Only hosts that begin with a digit can be addresses: no need to try others.
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host[:1].isdecimal() else None
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=4_096)
def is_inner(address: str) -> bool:
    """Return True if an address is loopback, private, link-local, multicast, reserved or unreadable."""
    found = literal(address)
    if found is None:
        return True
    meant = _embedded(found) or found
    is_local = isinstance(found, ipaddress.IPv6Address) and any(found in network for network in _LOCAL)
    return not meant.is_global or meant.is_multicast or meant.is_reserved or is_local or meant in _METADATA


@lru_cache(maxsize=4_096)
def is_metadata(address: str) -> bool:
    """Return True if an address is link-local, or if a cloud hands out credentials at it."""
    found = literal(address)
    if found is None:
        return False
    meant = _embedded(found) or found
    return meant.is_link_local or _without_scope(meant) in _METADATA


def is_local_name(host: str) -> bool:
    """Return True if a name means this machine by standard (RFC 6761), whatever a resolver answers."""
    host = host.rstrip(".").lower()
    return host == "localhost" or host.endswith(".localhost")


def _embedded(address: Ip) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if any(address in network for network in _HOLD_IPV4) and int(address) > 1:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _without_scope(address: Ip) -> Ip:
    return ipaddress.ip_address(address.packed)
