"""Silent connections: those on which no complete request comes are closed.

uvicorn closes a connection that sends nothing between two requests. It waits without end for the rest of a request line
or of headers, and for the first request. Each such connection costs a file descriptor, and any caller who reaches the
port can open them, without a token.

Promises: a connection is closed between REQUEST_S and REQUEST_S + LOOK_S after its last answer, or after it was opened.
One with an answer under way, such as a stream, is left alone. So is one whose body is late: `reading` limits that.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

REQUEST_S = 30.0
"""How long a request may take to arrive, without its body."""
LOOK_S = 5.0


class Cycle(Protocol):
    """One request of a connection and its answer, as uvicorn has it."""

    response_complete: bool


class Connection(Protocol):
    """A connection, as both of uvicorn's protocols have it."""

    @property
    def cycle(self) -> Cycle | None:
        """The last request; None before the first."""
        ...

    @property
    def transport(self) -> asyncio.BaseTransport:
        """The transport of the connection."""
        ...


class SilentConnections:
    """Watches the connections of one server, which are a set that uvicorn keeps up to date."""

    def __init__(self, connections: Collection[Connection]) -> None:
        self._connections = connections
        self._silent: dict[Connection, tuple[Cycle | None, float]] = {}
        """Since when each is silent, and its last request by then."""

    async def run(self) -> None:
        """Look until canceled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look(asyncio.get_running_loop().time())

    def look(self, now: float) -> None:
        """Close the connections that have been silent for too long."""
        found: dict[Connection, tuple[Cycle | None, float]] = {}
        for one in self._connections:
            if one.cycle is not None and not one.cycle.response_complete:
                continue
            cycle, since = self._silent.get(one, (one.cycle, now))
            found[one] = (one.cycle, since if cycle is one.cycle else now)
        self._silent = found
        for one, (_, since) in found.items():
            if now - since >= REQUEST_S:
                one.transport.close()
