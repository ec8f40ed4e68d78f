"""One exchange with one origin: what a client does for each hop of a request, and what it sends.

Two implementations keep this contract, and pass one suite of tests: `full_exchange` on aiohttp knows everything,
`lean_exchange` on httptools makes plain looks at a quarter of the cost.
"""

from typing import Protocol

from everpoll.http.contract import Answer, Request
from everpoll.http.redirects import Hop
from everpoll.http.unpacking import ACCEPTED
from everpoll.version import __version__

MAX_HEAD_BYTES = 64 * 1024
"""Of an answer: status line and headers together."""
MAX_FIELDS = 128
"""Headers of an answer. aiohttp has the same limit."""
MAX_FIELD_BYTES = 16 * 1024
"""Of one header, where the parser counts them apart."""
CONNECTION_AGE_S = 60.0
"""A connection that is older is not used again, so that changes of DNS records and certificates are seen."""
USER_AGENT = f"everpoll/{__version__}"

# Decided by the exchange: how the body is packed and framed, and whether the connection is kept.
_OWN = frozenset(
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
    """Ask once, follow nothing."""

    async def exchange(self, request: Request, hop: Hop, began: float, deadline: float) -> Answer:
        """Return the answer; `began` and `deadline` are times of the event loop.

        Raise `NotReached` where none came, `NotAsked` where this process could not ask.
        """
        ...

    async def close(self) -> None:
        """Close the connections of the running event loop. Repeatable."""
        ...


def headers_to_send(hop: Hop) -> dict[str, str]:
    """Return the headers of one hop: the user's, but for those that the exchange decides."""
    sent = {name: value for name, value in hop.headers.items() if name.lower() not in _OWN}
    names = {name.lower() for name in sent}
    if "user-agent" not in names:
        sent["User-Agent"] = USER_AGENT
    if "accept" not in names:
        sent["Accept"] = "*/*"
    sent["Accept-Encoding"] = ACCEPTED
    return sent
