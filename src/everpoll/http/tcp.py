"""The TCP check: connects to a port."""

import asyncio

from msgspec import Struct

from everpoll.http.contract import TIMEOUT_S, Reach
from everpoll.http.host_connections import connected, place


class TcpResult(Struct, frozen=True, gc=False):
    """A connection was made, and closed again."""

    address: str
    """The IP address that accepted the connection."""
    latency_s: float
    """The time for name look-up and connecting."""


async def check_tcp(host: str, port: int, *, timeout_s: float = TIMEOUT_S, reach: Reach = Reach.NAMED) -> TcpResult:
    """Connect to a port and disconnect; raise `NotReached` if that fails."""
    began = asyncio.get_running_loop().time()
    async with connected(place(host, port), reach, timeout_s) as connection:
        return TcpResult(connection.address.ip, asyncio.get_running_loop().time() - began)
