"""Several hosts in one address: the primary is found among them, and found again after a failover.

    postgresql://a:5432,b:5433/database        or ?host=a,b&port=5432,5433        or $PGHOST and $PGPORT

Promises: each host is asked separately, the last that worked first. The next is asked as soon as one has failed, or
has not answered within STAGGER_S: a host that does not answer delays the others by no more than that. The first host
that accepts is used. Never: leaves a connection open to a host that was not chosen.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from everpoll.errors import BadInput

T = TypeVar("T")

STAGGER_S = 1.0


class Host(NamedTuple):
    """One of the servers that the address names."""

    place: str
    """Host and port, for people."""
    dsn: str


class AllHostsFailed(Exception):
    """None of the hosts could be used; each with its error."""

    def __init__(self, errors: Sequence[tuple[Host, Exception]]) -> None:
        super().__init__("; ".join(f"{host.place}: {error}" for host, error in errors))
        self.errors = errors


def hosts_of(dsn: str) -> tuple[Host, ...]:
    """Return one address for each host. Raises ValueError for a port that is not valid."""
    parts = urlsplit(dsn)
    user, at, names = parts.netloc.rpartition("@")
    if names:
        for name in names.split(","):
            if not name or urlsplit(f"//{name}").port == 0:
                raise BadInput("the address of the database names no host between two commas, or port 0")
        return tuple(Host(name, parts._replace(netloc=f"{user}{at}{name}").geturl()) for name in names.split(","))
    given = dict(parse_qsl(parts.query))
    hosts = (given.get("host") or os.environ.get("PGHOST") or "").split(",")
    ports = (given.get("port") or os.environ.get("PGPORT") or "").split(",")
    if len(hosts) == 1:
        place = hosts[0] or "localhost"
        return (Host(f"{place}:{ports[0]}" if ports[0] else place, dsn),)
    if len(ports) not in {1, len(hosts)}:
        raise BadInput(f"the address of the database names {len(hosts)} hosts and {len(ports)} ports")
    rest = [piece for piece in parts.query.split("&") if piece.split("=", 1)[0] not in {"host", "port"}]
    found = []
    for number, host in enumerate(hosts):
        port = ports[number % len(ports)]
        own = [f"host={quote(host, safe='')}", *([f"port={port}"] if port else [])]
        query = "&".join([*filter(None, rest), *own])
        found.append(Host(f"{host}:{port}" if port else host, parts._replace(query=query).geturl()))
    return tuple(found)


async def first_usable(
    hosts: Sequence[Host], connect: Callable[[Host], Awaitable[T]], discard: Callable[[T], Any]
) -> tuple[Host, T]:
    """Return the first host that accepts, and the connection. Raises `AllHostsFailed`."""
    trying: dict[asyncio.Task[T], Host] = {}
    errors: list[tuple[Host, Exception]] = []
    left = list(hosts)
    try:
        while left or trying:
            if left:
                host = left.pop(0)
                trying[asyncio.ensure_future(connect(host))] = host
            done, _ = await asyncio.wait(
                trying, timeout=STAGGER_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if (error := task.exception()) is None:
                    return trying.pop(task), task.result()
                errors.append((trying.pop(task), _ordinary(error)))
        raise AllHostsFailed(errors)
    finally:
        await _discard(trying, discard)


def _ordinary(error: BaseException) -> Exception:
    if not isinstance(error, Exception):
        raise error
    return error


async def _discard(trying: dict[asyncio.Task[T], Host], discard: Callable[[T], Any]) -> None:
    """Close the connections that came too late."""
    for task in trying:
        task.cancel()
        task.add_done_callback(lambda late: None if late.cancelled() or late.exception() else discard(late.result()))
    await asyncio.sleep(0)
