"""The contract of an exchange: one request and one answer for each hop, and the headers that are sent.

Two implementations pass the same tests: `full_exchange` on aiohttp supports everything, `lean_exchange` on httptools
makes plain looks at a quarter of the cost.
"""

from typing import Protocol

from everpoll.http.contract import Answer, Request
from everpoll.http.redirects import Hop
from everpoll.http.unpacking import ACCEPTED
from everpoll.version import __version__

MAX_HEAD_BYTES = 64 * 1024
"""The limit of an answer's status line and headers together."""
MAX_FIELDS = 128
"""How many headers an answer may have. aiohttp has the same limit."""
MAX_FIELD_BYTES = 16 * 1024
"""The limit of one header, if the parser has a limit for each."""
CONNECTION_AGE_S = 60.0
"""A connection that is older is not used again, so that changes of DNS records and certificates are seen."""
USER_AGENT = f"everpoll/{__version__}"

# The exchange decides these: compression and framing of the body, and whether the connection is reused.
_SET_BY_EXCHANGE = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Exchange(Protocol):
    """Sends one request and follows no redirect."""

    async def exchange(self, request: Request, hop: Hop, began: float, deadline: float) -> Answer:
        """Return the answer; `began` and `deadline` are times of the event loop.

        Raise `NotReached` if none came, `NotAsked` if this process could not send the request.
        """
        ...

    async def close(self) -> None:
        """Close the connections of the running event loop. Repeatable."""
        ...


def headers_to_send(hop: Hop) -> dict[str, str]:
    """Return the headers of one hop: the user's, except those that the exchange decides."""
    sent = {name: value for name, value in hop.headers.items() if name.lower() not in _SET_BY_EXCHANGE}
    names = {name.lower() for name in sent}
    if "user-agent" not in names:
        sent["User-Agent"] = USER_AGENT
    if "accept" not in names:
        sent["Accept"] = "*/*"
    sent["Accept-Encoding"] = ACCEPTED
    return sent
