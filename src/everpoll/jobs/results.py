"""Waiting for results: one batched look serves every waiter of this process.

Promises: a result that this process's own worker settles is seen at once; others within a second. No notification
is sent for completions: they would take a global lock of the database at every commit.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable

from everpoll.engine.alone import refuse_to_wait_alone
from everpoll.errors import NotRunning, StoreUnavailable
from everpoll.policy import Backoff
from everpoll.stores.contract import Store, TaskInfo

logger = logging.getLogger("everpoll.jobs")

# Most jobs end soon: the first looks come quickly, and a long wait costs one look a second for all waiters.
CADENCE = Backoff("20ms", factor=1.5, cap="1s", jitter=0)
LOOK_LIMIT = 1_000


class Results:
    """The waiters of one process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: dict[int, asyncio.Future[TaskInfo]] = {}
        self._waiting: Counter[int] = Counter()
        self._nudged = asyncio.Event()
        self._looks = 0
        self._looker: asyncio.Task[None] | None = None

    async def wait(self, task_id: int) -> TaskInfo:
        """The task, once it has ended."""
        if task_id not in self._waiters:
            self._waiters[task_id] = asyncio.get_running_loop().create_future()
            self._looks = 0
            self._nudged.set()
            if self._looker is None or self._looker.done():
                self._looker = asyncio.get_running_loop().create_task(self._look(), name="everpoll-results")
        waiter = self._waiters[task_id]
        self._waiting[task_id] += 1
        try:
            # Shielded: one waiter that gives up must not take the answer away from the others.
            return await asyncio.shield(waiter)
        finally:
            self._waiting[task_id] -= 1
            if not self._waiting[task_id]:
                # Nobody is left who wants to know: the looks for it end.
                del self._waiting[task_id]
                if self._waiters.get(task_id) is waiter:
                    del self._waiters[task_id]

    def settled(self, task_ids: Iterable[int]) -> None:
        """This process has just settled these."""
        if self._waiters and not self._waiters.keys().isdisjoint(task_ids):
            self._looks = 0
            self._nudged.set()

    async def close(self) -> None:
        """Whoever still waits is told that nobody looks any more."""
        if self._looker is not None:
            self._looker.cancel()
            await asyncio.gather(self._looker, return_exceptions=True)
        # An error, not a cancellation: nobody has canceled the task that waits.
        self._fail(NotRunning("the app was closed before the task had ended; ask for its result again later"))

    async def _look(self) -> None:
        while self._waiters:
            self._nudged.clear()
            ids = list(self._waiters)
            try:
                for start in range(0, len(ids), LOOK_LIMIT):
                    for task_id, info in (await self._store.ended(ids[start : start + LOOK_LIMIT])).items():
                        self._answer(task_id, info)
            except StoreUnavailable as error:
                logger.warning("cannot look for results: %s; trying again", error)
            except Exception as error:
                logger.exception("looking for results failed; everybody who waits is told")
                self._fail(error)
            self._looks += 1
            try:
                await refuse_to_wait_alone(self._store, self._looks)
            except NotRunning as error:
                self._fail(error)
            if self._waiters:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CADENCE.delay(self._looks)):
                        await self._nudged.wait()

    def _fail(self, error: Exception) -> None:
        waiters = list(self._waiters.values())
        self._waiters.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _answer(self, task_id: int, info: TaskInfo) -> None:
        waiter = self._waiters.pop(task_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(info)
