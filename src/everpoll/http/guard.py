"""The guard: decides which addresses of a host are allowed, and where a redirect may lead.

    reach          the host was named by                        private    link-local, metadata of a cloud
    NAMED          the user                                     yes        only as an address in the URL
    INSIDE         an answer that came from inside              yes        no
    PUBLIC         an answer                                    no         no
    PUBLIC_PART    an answer of this host, from outside         left out   no

Pure. Every address of a name is checked, and a single forbidden address refuses the name, because a connection may go
to any of them. The client connects only to addresses that the guard returns.
"""

from everpoll.http.address_ranges import IpAddress, is_inner, is_local_name, is_metadata
from everpoll.http.contract import Kind, NotReached, Reach
from everpoll.http.urls import Target

MAX_ADDRESSES = 16
"""How many addresses of one host are tried; all of them are checked."""


def allowed(target: Target, reach: Reach, found: list[IpAddress]) -> list[IpAddress]:
    """Return the allowed addresses; raise `NotReached` if the guard refuses the host."""
    if not found:
        raise NotReached(f"{target.host} has no address", Kind.DNS)
    is_written = reach is Reach.NAMED and target.is_literal
    if not is_written and any(is_metadata(one.ip) for one in found):
        raise _metadata(target)
    if reach in (Reach.PUBLIC, Reach.PUBLIC_PART):
        public = [one for one in found if not is_inner(one.ip)]
        if not public or (reach is Reach.PUBLIC and len(public) < len(found)):
            raise _private(target)
        found = public
    return found[:MAX_ADDRESSES]


def allow_name(target: Target, reach: Reach) -> None:
    """Raise `NotReached` if the URL itself shows that the guard refuses it, before the name is looked up."""
    if reach in (Reach.PUBLIC, Reach.PUBLIC_PART) and is_local_name(target.host):
        raise _private(target)


def reach_of_redirect(named: Target, reach: Reach, home_address: str, target: Target) -> Reach:
    """Return the reach of a redirect.

    `named` and `reach` are those of the request; `home_address` is the address from which the named host answered last.
    """
    if target.host != named.host or reach is Reach.PUBLIC:
        return Reach.PUBLIC
    # A host may have public and private addresses: an answer from a public one leads to its public ones.
    return reach if home_address and is_inner(home_address) else Reach.PUBLIC_PART


def names_inner(target: Target) -> bool:
    """Return True if the URL itself names a private address: `http://10.0.0.5/`, `http://localhost/`."""
    return is_local_name(target.host) or (target.is_literal and is_inner(target.host))


def names_metadata(target: Target) -> bool:
    """Return True if the URL itself names a link-local address, or the metadata of a cloud."""
    return target.is_literal and is_metadata(target.host)


def _private(target: Target) -> NotReached:
    what = f"{target.shown} is a private address, and you did not name its host"
    return NotReached(f"{what}: an answer must not lead there", Kind.ADDRESS)


def _metadata(target: Target) -> NotReached:
    what = f"{target.shown} leads to a link-local address or to the metadata of a cloud, which hands out credentials"
    return NotReached(f"{what}; if that is right, write the address itself as the URL", Kind.ADDRESS)
