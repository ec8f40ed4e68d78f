"""Who waits for changes of runs in this process, and one look at the events for all of them.

Promises: what this process's own worker settles is heard of at once; others' within a second. A waiter looks by itself
now and then, whatever the feed says: a feed that is held up delays nobody for long. No look while nobody waits.
Whoever waits when the app is closed is told so: nobody would open its store again by looking.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable

from everpoll.engine.alone import refuse_to_wait_alone
from everpoll.errors import NotRunning, StoreUnavailable
from everpoll.policy import Backoff
from everpoll.stores.contract import Store

logger = logging.getLogger("everpoll.watches")

CADENCE = Backoff("50ms", factor=1.5, cap="1s", jitter=0)
OWN_LOOK_S = 5.0
PAGE = 1_000


class Changes:
    """One waiter."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._over: NotRunning | None = None

    def tell(self, over: NotRunning | None = None) -> None:
        """Something may have changed, or nobody looks any more."""
        self._over = self._over or over
        self._changed.set()

    async def wait(self) -> None:
        """Until something may have changed; raises `NotRunning` once the app is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OWN_LOOK_S):
                await self._changed.wait()
        self._changed.clear()
        self.refuse_if_over()

    def refuse_if_over(self) -> None:
        """Raise `NotRunning` if the app was closed."""
        if self._over is not None:
            raise self._over.with_traceback(None)


class Feed:
    """All waiters of one process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: defaultdict[int, set[Changes]] = defaultdict(set)
        self._after: str | None = None
        self._looks = 0
        self._nudged = asyncio.Event()
        self._looker: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def subscribe(self, task_id: int) -> AsyncIterator[Changes]:
        """Hear of changes of this task from now on."""
        changes = Changes()
        self._waiters[task_id].add(changes)
        self._looks = 0
        self._nudged.set()
        if self._looker is None or self._looker.done():
            self._after = None
            self._looker = asyncio.get_running_loop().create_task(self._look(), name="everpoll-events")
        try:
            yield changes
        finally:
            self._waiters[task_id].discard(changes)
            if not self._waiters[task_id]:
                del self._waiters[task_id]

    def settled(self, task_ids: Iterable[int]) -> None:
        """This process has just settled these."""
        if self._waiters:
            self._tell(task_ids)

    async def close(self) -> None:
        """Nobody looks any more, and whoever waits is told."""
        if self._looker is not None:
            self._looker.cancel()
            await asyncio.gather(self._looker, return_exceptions=True)
        self._end(NotRunning("the app was closed before the run had ended; ask for it again later"))

    def _end(self, over: NotRunning) -> None:
        for waiters in self._waiters.values():
            for changes in waiters:
                changes.tell(over)

    def _tell(self, task_ids: Iterable[int]) -> None:
        for task_id in task_ids:
            for changes in self._waiters.get(task_id, ()):
                changes.tell()

    async def _look(self) -> None:
        while self._waiters:
            self._nudged.clear()
            found = 0
            try:
                page = await self._store.events(self._after, PAGE)
                if self._after is None:
                    # Nothing before this position was promised; but it may have happened since they asked.
                    self._tell(list(self._waiters))
                self._after, found = page.after, len(page.events)
                self._tell({one.task_id for one in page.events})
            except StoreUnavailable as error:
                logger.warning("cannot look for events: %s; trying again", error)
            except Exception:
                logger.exception("looking for events failed; trying again")
            self._looks = 0 if found else self._looks + 1
            try:
                await refuse_to_wait_alone(self._store, self._looks)
            except NotRunning as error:
                self._end(error)
            if found < PAGE and self._waiters:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CADENCE.delay(self._looks)):
                        await self._nudged.wait()
