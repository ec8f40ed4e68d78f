"""Coalescing: callers at the same time share one call of the store.

Promises: the first caller is served at once; callers that come during its call share the next one. Each gets its own
answer, and an error of the call is raised in all that shared it. A lone caller never waits for others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
A = TypeVar("A")
BATCH = 1_000


class Coalescer(Generic[Item, A]):
    """The calls of one kind in this process. `send` returns one answer for each item, in the same order."""

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[A]]], most: int = BATCH) -> None:
        self._send = send
        self._most = most
        self._waiting: list[tuple[Item, asyncio.Future[A]]] = []
        self._is_busy = False
        self._sending: asyncio.Task[None] | None = None

    async def one(self, item: Item) -> A:
        """Return the answer for this item."""
        if self._is_busy:
            answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
            self._waiting.append((item, answer))
            return await answer
        self._is_busy = True
        try:
            return (await self._send((item,)))[0]
        finally:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._sending = asyncio.get_running_loop().create_task(self._flush(), name="everpoll-coalescer")
        else:
            self._is_busy = False

    async def _flush(self) -> None:
        # Leave out the items of callers that were canceled while they waited.
        wanted = [(item, answer) for item, answer in self._waiting if not answer.done()]
        batch, self._waiting = wanted[: self._most], wanted[self._most :]
        try:
            answers = await self._send([item for item, _ in batch]) if batch else ()
        except Exception as error:  # noqa: BLE001 - the callers get it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for (_, answer), one in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(one)
        finally:
            for _, answer in batch:
                answer.cancel()
            self._next()
