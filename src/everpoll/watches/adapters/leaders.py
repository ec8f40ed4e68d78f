"""What leads to a URL, and how far it may lead: an answer from outside leads to nothing inside.

    the address that led there    may lead to
    outside                       addresses outside
    inside                        addresses outside and inside, but not to metadata
    -                             metadata and link-local: only as an address that the user wrote, never by a name

The guard of `everpoll.http` judges the addresses; here is decided which of its rules holds.
"""

from typing import NamedTuple

from everpoll.http.address_ranges import is_inner
from everpoll.http.contract import NotAsked, NotReached, Reach
from everpoll.http.guard import names_inner, names_metadata
from everpoll.http.lookups import addresses_of
from everpoll.http.urls import shown, target_of
from everpoll.watches.adapters.addresses import Refused


class Leader(NamedTuple):
    """What led to a URL: a URL, and the address that answered there, which is empty where it is not known."""

    url: str
    peer: str = ""

    @property
    def host(self) -> str:
        """The host of its URL."""
        return target_of(self.url).host


async def reach_of(leader: Leader, url: str) -> Reach:
    """Return which addresses this leader may lead to."""
    if await _is_inside(leader):
        return Reach.INSIDE
    # A host may have addresses of both kinds: one that answered from outside leads to those of itself outside.
    return Reach.PUBLIC_PART if leader.host == target_of(url).host else Reach.PUBLIC


def check_by_name(leader: Leader, url: str) -> None:
    """Raise `Refused` where the URL itself shows that it leads inside: for clients that look names up themselves."""
    target = target_of(url)
    if names_inner(target) and not names_inner(target_of(leader.url)):
        raise led_inside(leader.url, url)
    if names_metadata(target):
        raise led_to_metadata(url)


def led_inside(home: str, url: str) -> Refused:
    """Return the error for a remote that leads to an address inside."""
    what = f"{shown(home)} leads to {shown(url)}, a private address, which is not asked on behalf of the outside"
    return Refused(f"{what}; list its host in trusted= if it may be")


def led_to_metadata(url: str) -> Refused:
    """Return the error for a URL that leads to the metadata of a cloud, or to a link-local address."""
    what = f"{shown(url)} leads to a link-local address or to the metadata of a cloud, which hands out credentials"
    return Refused(f"{what}: write the address itself as the URL, or in trusted=, if it is meant")


async def _is_inside(leader: Leader) -> bool:
    """Whether the address that answered is inside; where it is not known, whether all addresses of its host are."""
    if leader.peer:
        return is_inner(leader.peer)
    target = target_of(leader.url)
    try:
        found = await addresses_of(target.host, target.port)
    except (NotReached, NotAsked):
        return False
    return bool(found) and all(is_inner(one.ip) for one in found)
