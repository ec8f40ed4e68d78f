"""Enqueueing from one process: callers at the same time share one statement.

Promises: the first caller goes at once; whoever comes while a statement is under way shares the next one. A call
returns when its task is committed. Never: makes a lone caller wait for others.
"""

import asyncio
from collections.abc import Sequence

from everpoll.stores.contract import Enqueued, NewTask, Store

BATCH = 1_000


class Enqueuer:
    """The one way in of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[NewTask, asyncio.Future[Enqueued]]] = []
        self._busy = False
        self._flusher: asyncio.Task[None] | None = None

    async def one(self, task: NewTask) -> Enqueued:
        """Enqueue one task."""
        if self._busy:
            answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
            self._waiting.append((task, answer))
            return await answer
        self._busy = True
        try:
            return (await self._store.enqueue((task,)))[0]
        finally:
            self._next()

    async def many(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Enqueue a whole list, all or none."""
        return await self._store.enqueue(tasks) if tasks else []

    def _next(self) -> None:
        if self._waiting:
            self._flusher = asyncio.get_running_loop().create_task(self._flush(), name="everpoll-enqueuer")
        else:
            self._busy = False

    async def _flush(self) -> None:
        # Whoever gave up waiting before its task was on its way does not want it any more.
        wanted = [(task, answer) for task, answer in self._waiting if not answer.done()]
        batch, self._waiting = wanted[:BATCH], wanted[BATCH:]
        try:
            answers = await self.many([task for task, _ in batch])
        except Exception as error:  # noqa: BLE001 - every caller hears of it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for (_, answer), enqueued in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(enqueued)
        finally:
            for _, answer in batch:
                if not answer.done():
                    answer.cancel()
            self._next()
