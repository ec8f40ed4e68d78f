"""The TCP check: does a port take connections?"""

import asyncio

from msgspec import Struct

from everpoll.http.contract import TIMEOUT_S, Reach
from everpoll.http.host_connections import connected, place


class TcpResult(Struct, frozen=True, gc=False):
    """A connection was made, and closed again."""

    address: str
    """The IP address that took it."""
    latency_s: float
    """Name look-up and connecting."""


async def check_tcp(host: str, port: int, *, timeout_s: float = TIMEOUT_S, reach: Reach = Reach.NAMED) -> TcpResult:
    """Connect to a port; raise `NotReached` where that is not possible."""
    began = asyncio.get_running_loop().time()
    async with connected(place(host, port), reach, timeout_s) as connection:
        return TcpResult(connection.address.ip, asyncio.get_running_loop().time() - began)
