"""Connects to one of a host's addresses: the next one is tried if one fails, or does not answer for STAGGER_S.

Promises: it connects to the given addresses only; a cancellation closes every socket. The caller sets the deadline. A
dead address of a host costs STAGGER_S, not the whole timeout (RFC 8305).
"""

import asyncio
import contextlib
import itertools
import socket

from everpoll.http.address_ranges import IpAddress

STAGGER_S = 0.25


async def connect(addresses: list[IpAddress]) -> tuple[socket.socket, IpAddress]:
    """Return a connected socket and its address; raise the `OSError` of the first failure if all addresses fail."""
    if len(addresses) == 1:
        return await _one(addresses[0]), addresses[0]
    waiting = _interleaved(addresses)
    attempts: dict[asyncio.Task[socket.socket], IpAddress] = {}
    failures: list[OSError] = []
    try:
        while waiting or attempts:
            if waiting:
                address = waiting.pop(0)
                attempts[asyncio.create_task(_one(address))] = address
            done, _ = await asyncio.wait(
                attempts, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                address = attempts.pop(attempt)
                try:
                    return attempt.result(), address
                except OSError as error:
                    failures.append(error)
        raise failures[0]
    finally:
        await _drop(attempts)


async def _one(address: IpAddress) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address.place)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


async def _drop(attempts: dict[asyncio.Task[socket.socket], IpAddress]) -> None:
    for attempt in attempts:
        attempt.cancel()
    for attempt in attempts:
        # An attempt that has just succeeded has a socket, which must be closed.
        with contextlib.suppress(asyncio.CancelledError, OSError):
            (await attempt).close()


def _interleaved(addresses: list[IpAddress]) -> list[IpAddress]:
    """Alternate IPv4 and IPv6 addresses: a network without IPv6 then costs one attempt, not all of them."""
    first = [one for one in addresses if one.family == addresses[0].family]
    others = [one for one in addresses if one.family != addresses[0].family]
    pairs = itertools.chain.from_iterable(itertools.zip_longest(first, others))
    return [one for one in pairs if one is not None]
