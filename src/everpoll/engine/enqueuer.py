"""Enqueueing from one process: callers at the same time share one statement.

Promises: the first caller is served at once; callers that come during its statement share the next one. A call returns
when its task is committed. A statement that the store refuses is split until only the task that caused it fails. A task
whose key is locked by an open transaction waits alone. A lone caller never waits for others.
"""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from everpoll.drivers.locks import LockHeld
from everpoll.engine.batch_errors import may_be_one_items_fault
from everpoll.engine.held_keys import retry_while_locked
from everpoll.stores.contract import Enqueued, NewTask, Store
from everpoll.stores.limits import STATEMENT_BYTES, task_bytes

BATCH = 1_000
Waiting: TypeAlias = tuple[NewTask, "asyncio.Future[Enqueued]"]


class Enqueuer:
    """Enqueues the tasks of all callers of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[Waiting] = []
        self._busy = False
        self._flusher: asyncio.Task[None] | None = None
        self._apart: Enqueuer | None = None

    async def one(self, task: NewTask) -> Enqueued:
        """Enqueue one task."""
        try:
            if self._busy:
                answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
                self._waiting.append((task, answer))
                return await answer
            self._busy = True
            try:
                return (await self._store.enqueue((task,)))[0]
            finally:
                self._next()
        except LockHeld:
            return await self._alone(task)

    async def one_of(self, task: NewTask) -> Enqueued:
        """Enqueue one task. If it has a key, it shares no statement with tasks that have none.

        A transaction of another program may have locked the key, and then the statement waits for it. A task that
        replaces another has a statement of its own: locking several tasks could deadlock with their settlement.
        """
        if task.key is None:
            return await self.one(task)
        if task.unique is not None and task.unique.on_conflict == "replace":
            return await self._alone(task)
        if self._apart is None:
            self._apart = Enqueuer(self._store)
        return await self._apart.one(task)

    async def many(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Enqueue a whole list, all or none."""
        return await retry_while_locked(lambda: self._store.enqueue(tasks)) if tasks else []

    async def _alone(self, task: NewTask) -> Enqueued:
        return (await retry_while_locked(lambda: self._store.enqueue((task,))))[0]

    def _next(self) -> None:
        if self._waiting:
            self._flusher = asyncio.get_running_loop().create_task(self._flush(), name="everpoll-enqueuer")
        else:
            self._busy = False

    async def _flush(self) -> None:
        batch = self._portion()
        try:
            await self._enqueue(batch)
        finally:
            for _, answer in batch:
                if not answer.done():
                    answer.cancel()
            self._next()

    def _portion(self) -> list[Waiting]:
        """Take as many tasks as one statement may carry, and at least one, whatever its size."""
        wanted = _wanted(self._waiting)
        size = count = 0
        for task, _ in wanted[:BATCH]:
            size += task_bytes(task)
            if count and size > STATEMENT_BYTES:
                break
            count += 1
        self._waiting = wanted[count:]
        return wanted[:count]

    async def _enqueue(self, batch: list[Waiting]) -> None:
        if not batch:
            return
        try:
            answers = await self._store.enqueue([task for task, _ in batch])
        except Exception as error:  # noqa: BLE001 - the callers get it
            if len(batch) > 1 and may_be_one_items_fault(error):
                middle = len(batch) // 2
                await self._enqueue(_wanted(batch[:middle]))
                await self._enqueue(_wanted(batch[middle:]))
                return
            for _, answer in _wanted(batch):
                answer.set_exception(error)
        else:
            for (_, answer), enqueued in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(enqueued)


def _wanted(waiting: list[Waiting]) -> list[Waiting]:
    """Leave out the tasks of callers that gave up before their task was sent."""
    return [(task, answer) for task, answer in waiting if not answer.done()]
