"""Decides which addresses a URL may lead to, by where the URL comes from: a public answer never leads to a private one.

    the URL comes from         it may lead to
    a public address           public addresses
    a private address          public and private addresses, but not to metadata
    the user                   public and private addresses; metadata and link-local ones only if written as addresses

The guard of `everpoll.http` judges the addresses; this module chooses which of its rules holds.
"""

from typing import NamedTuple

from everpoll.http.address_ranges import is_inner
from everpoll.http.contract import NotAsked, NotReached, Reach
from everpoll.http.guard import names_inner, names_metadata
from everpoll.http.lookups import addresses_of
from everpoll.http.urls import shown, target_of
from everpoll.watches.adapters.addresses import Refused


class UrlOrigin(NamedTuple):
    """The URL that led to another one, and the address that answered there; empty if that is unknown."""

    url: str
    peer: str = ""

    @property
    def host(self) -> str:
        """The host of the URL."""
        return target_of(self.url).host


async def reach_of(origin: UrlOrigin, url: str) -> Reach:
    """Return which addresses a URL from this origin may lead to."""
    if await _is_inside(origin):
        return Reach.INSIDE
    # A host may have public and private addresses: an answer from a public one leads to its public ones only.
    return Reach.PUBLIC_PART if origin.host == target_of(url).host else Reach.PUBLIC


def check_by_name(origin: UrlOrigin, url: str) -> None:
    """Raise `Refused` if the URL itself names a private address: for clients that resolve names themselves."""
    target = target_of(url)
    if names_inner(target) and not names_inner(target_of(origin.url)):
        raise led_inside(origin.url, url)
    if names_metadata(target):
        raise led_to_metadata(url)


def led_inside(home: str, url: str) -> Refused:
    """Return the error for a remote that leads to a private address."""
    what = f"{shown(home)} leads to {shown(url)}, a private address, to which a public answer may not lead"
    return Refused(f"{what}; if that is right, list the host in trusted=")


def led_to_metadata(url: str) -> Refused:
    """Return the error for a URL that leads to the metadata of a cloud, or to a link-local address."""
    what = f"{shown(url)} leads to a link-local address or to the metadata of a cloud, which hands out credentials"
    return Refused(f"{what}: if that is right, write the address itself as the URL, or in trusted=")


async def _is_inside(origin: UrlOrigin) -> bool:
    """Return True if the address that answered is private. If it is unknown, all addresses of the host must be."""
    if origin.peer:
        return is_inner(origin.peer)
    target = target_of(origin.url)
    try:
        found = await addresses_of(target.host, target.port)
    except (NotReached, NotAsked):
        return False
    return bool(found) and all(is_inner(one.ip) for one in found)
