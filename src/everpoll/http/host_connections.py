"""Connections to a host and a port without HTTP: looks the name up, asks the guard, and connects.

Promises: one deadline for everything; a failure is `NotReached` or `NotAsked`, with the same messages and kinds as for
a request.
"""

import asyncio
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everpoll.errors import BadInput
from everpoll.http.address_ranges import IpAddress
from everpoll.http.connecting import connect
from everpoll.http.contract import Kind, NotReached, Reach
from everpoll.http.faults import error_of_os, lookup_timed_out, place_of
from everpoll.http.guard import allow_name, allowed
from everpoll.http.lookups import addresses_of
from everpoll.http.urls import Target, target_of
from everpoll.policy import human


def place(host: Any, port: Any) -> Target:
    """Read a host and a port; raise `BadInput` if they are not valid."""
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65_535:
        raise BadInput(f"port={port!r}: must be between 1 and 65535")
    if not isinstance(host, str) or not host or any(sign in "/?#@[]%" for sign in host):
        raise BadInput(f"host={str(host)[:100]!r}: write a name or an address, without scheme and port")
    return target_of(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")


class OpenConnection:
    """An open connection: its socket and address, and all allowed addresses of the host."""

    def __init__(self, sock: socket.socket, address: IpAddress, addresses: list[IpAddress]) -> None:
        self.sock = sock
        self.address = address
        self.addresses = addresses


@asynccontextmanager
async def connected(target: Target, reach: Reach, timeout_s: float) -> AsyncIterator[OpenConnection]:
    """Connect for the time of the block, which is inside the deadline, too. The socket is closed after the block."""
    if not math.isfinite(timeout_s) or timeout_s <= 0:
        raise BadInput(f"timeout_s={timeout_s!r}: must be a number of seconds above 0")
    allow_name(target, reach)
    where, doing = place_of(target), ""
    try:
        async with asyncio.timeout(timeout_s):
            found = allowed(target, reach, await addresses_of(target.host, target.port))
            doing = "connecting"
            sock, address = await connect(found)
            doing = "the TLS handshake"
            with sock:
                yield OpenConnection(sock, address, found)
    except TimeoutError as error:
        if error.errno is not None:
            raise error_of_os(error, where) from None
        if not doing:
            raise lookup_timed_out(target, timeout_s) from None
        raise NotReached(f"{where}: {doing} took longer than {human(timeout_s)}", Kind.TIMED_OUT) from None
    except OSError as error:
        raise error_of_os(error, where) from None
