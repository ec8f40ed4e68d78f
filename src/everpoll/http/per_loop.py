"""Holds one object for each event loop, and closes it together with its loop.

A connection belongs to the event loop that opened it, and a client may serve several event loops: that of the app,
those of plain functions that call `asyncio.run`, those of tests. Each object is held by an asynchronous generator: when
`asyncio.run` or `asyncio.Runner` end, they close all generators of their loop, and so the object.
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
        """Return the object of this loop; None if it has none yet."""
        found = self._held.get(loop)
        return None if found is None else found[0]

    async def open(self) -> T:
        """Return the object of the running loop; make it if there is none."""
        loop = asyncio.get_running_loop()
        found = self.of(loop)
        if found is not None:
            return found
        # Forget loops that were closed without closing their generators: the garbage collector closes their objects.
        for closed in [one for one in tuple(self._held) if one.is_closed()]:
            self._held.pop(closed, None)
        made = self._make()
        holder = self._holder(made, loop)
        self._held[loop] = (made, holder)
        # This does not switch tasks: the generator runs to its yield.
        await anext(holder)
        return made

    async def close(self) -> None:
        """Close the object of the running loop. May be repeated."""
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
