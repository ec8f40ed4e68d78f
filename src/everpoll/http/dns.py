"""The DNS check: looks up the addresses of a name, by the system's resolver."""

import asyncio
import math
import socket
from typing import Literal

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.http.contract import TIMEOUT_S, Kind, NotReached
from everpoll.http.faults import lookup_timed_out
from everpoll.http.host_connections import place
from everpoll.http.lookups import addresses_of

Record = Literal["A", "AAAA"]
_FAMILIES = {"A": socket.AF_INET, "AAAA": socket.AF_INET6}


class DnsResult(Struct, frozen=True, gc=False):
    """The addresses of a name."""

    addresses: tuple[str, ...]
    """The addresses in the resolver's order."""
    latency_s: float


async def check_dns(name: str, *, record: Record | None = None, timeout_s: float = TIMEOUT_S) -> DnsResult:
    """Look a name up; raise `NotReached` if it has no address of that kind."""
    if record is not None and record not in _FAMILIES:
        raise BadInput(f"record={record!r}: write 'A' or 'AAAA'")
    if not math.isfinite(timeout_s) or timeout_s <= 0:
        raise BadInput(f"timeout_s={timeout_s!r}: must be a number of seconds above 0")
    target, loop = place(name, 443), asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(timeout_s):
            found = await addresses_of(target.host, target.port)
    except TimeoutError:
        raise lookup_timed_out(target, timeout_s) from None
    ips = tuple(one.ip for one in found if record is None or one.family == _FAMILIES[record])
    if not ips:
        raise NotReached(f"the name {target.host} has no {record} record", Kind.DNS)
    return DnsResult(ips, loop.time() - began)
