"""Holds one object for each event loop, and closes it together with its loop.

A connection belongs to the event loop that opened it, and a client may serve several: that of the app, those of plain
functions that call `asyncio.run`, those of tests. Python closes what is left when a loop shuts down its asynchronous
generators, as `asyncio.run` and `asyncio.Runner` do: so such a generator holds each object.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes a T for each event loop that asks, and closes it with the loop."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[T, None]]] = {}

    def of(self, loop: asyncio.AbstractEventLoop) -> T | None:
        """Return what this loop has; None where it has nothing yet."""
        found = self._held.get(loop)
        return None if found is None else found[0]

    async def open(self) -> T:
        """Return what the running loop has, made now if need be."""
        loop = asyncio.get_running_loop()
        found = self.of(loop)
        if found is not None:
            return found
        # Loops that were closed without being shut down: what they had is closed by the garbage collector.
        for closed in [one for one in tuple(self._held) if one.is_closed()]:
            self._held.pop(closed, None)
        made = self._make()
        holder = self._holder(made, loop)
        self._held[loop] = (made, holder)
        # Does not give way to others: the generator runs to its yield.
        await anext(holder)
        return made

    async def close(self) -> None:
        """Close what the running loop has. Repeatable."""
        found = self._held.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[1].aclose()

    async def _holder(self, made: T, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[T, None]:
        try:
            yield made
        finally:
            found = self._held.get(loop)
            if found is not None and found[0] is made:
                del self._held[loop]
            await self._close(made)
