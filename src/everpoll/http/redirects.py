"""Redirects: decides where a redirect leads, and what is sent there.

    request ──▶ hop ──3xx with Location──▶ hop ──▶ … ──▶ answer        at most 10, never in a loop

Promises: redirects are followed for GET and HEAD only. They lead to http and https URLs without user and password,
within the reach that `guard` allows. The user's headers, body and client certificate are sent only to the origin
(scheme, host and port), except for headers that contain nothing about the user. Once a chain has left the origin, it
never sends them again. So HTTPS is never left with credentials. Pure.
"""

import ssl
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from everpoll.errors import BadInput
from everpoll.http.contract import MAX_REDIRECTS, Kind, NotReached, Reach, Request, Tls
from everpoll.http.guard import reach_of_redirect
from everpoll.http.headers import Headers
from everpoll.http.urls import Target, is_same_origin, joined, target_of

FOLLOWED = frozenset({301, 302, 303, 307, 308})
READS = frozenset({"GET", "HEAD"})
# These may be sent to other origins. Conditions belong to them, because an ETag names the last answer of a chain.
_TRAVELS = frozenset(
    {"accept", "accept-language", "cache-control", "if-modified-since", "if-none-match", "pragma", "user-agent"}
)


class Hop(Struct, frozen=True):
    """One exchange with one origin."""

    target: Target
    headers: Mapping[str, str]
    """The headers to send, with references to the environment replaced."""
    body: bytes | None
    reach: Reach
    tls: Tls | ssl.SSLContext | None

    def __repr__(self) -> str:
        return f"<Hop {self.target.shown}>"


class Chain:
    """The redirects of one request so far."""

    def __init__(self, request: Request, first: Hop) -> None:
        self._request = request
        self._named = first.target
        self._home_address = ""
        self._seen = {first.target.url}
        self.hop = first

    def advance(self, status: int, headers: Headers, address: str) -> bool:
        """Move to the next hop; return False if this answer is the last one. Raise `NotReached` if it is forbidden."""
        request, location = self._request, headers.first("location")
        is_followed = request.follow_redirects and request.method in READS and status in FOLLOWED
        if not is_followed or not location:
            return False
        if self.hop.target.host == self._named.host:
            self._home_address = address
        target = self._target(location)
        self._seen.add(target.url)
        reach = reach_of_redirect(self._named, request.reach, self._home_address, target)
        self.hop = self._without_credentials(target, reach)
        return True

    def _target(self, location: str) -> Target:
        before = self.hop.target.shown
        try:
            target = target_of(joined(self.hop.target.url, location))
        except BadInput:
            raise NotReached(
                f"{before} redirects to something that is not an http or https URL", Kind.REDIRECT
            ) from None
        if target.credentials:
            raise NotReached(f"{before} redirects to a URL with a user or password in it", Kind.REDIRECT)
        if target.url in self._seen:
            raise NotReached(f"{self._named.shown}: redirect loop over {target.shown}", Kind.REDIRECT)
        if len(self._seen) > MAX_REDIRECTS:
            raise NotReached(f"{self._named.shown}: more than {MAX_REDIRECTS} redirects", Kind.REDIRECT)
        return target

    def _without_credentials(self, target: Target, reach: Reach) -> Hop:
        # Compare with the hop before, which has no credentials any more once the chain has left the origin.
        if is_same_origin(self.hop.target, target):
            return replace(self.hop, target=target, reach=reach)
        harmless = {name: value for name, value in self.hop.headers.items() if name.lower() in _TRAVELS}
        tls = self.hop.tls
        return Hop(target, harmless, None, reach, Tls(ca_file=tls.ca_file) if isinstance(tls, Tls) else None)
