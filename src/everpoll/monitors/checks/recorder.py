"""Recorder: writes looks into the records, many in one transaction.

    add ──▶ waiting ──within FLUSH_S──▶ one batch ──▶ written
                          ▲               │
                          └── store away ─┘   kept, and written when the store is back

Promises: while the store answers, a look is written within FLUSH_S. `put` returns once its look is written. An outage
of the store loses no look until LIMIT of them wait; then the oldest are dropped, and their time counts as not covered,
not as down. A batch that the store refuses is split until only the refused look is dropped, with its error in the log.
"""

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct

from everpoll.errors import StoreUnavailable
from everpoll.policy import Backoff, human
from everpoll.stores.contract import Store
from everpoll.stores.health import BATCH_LIMIT, NewLook

logger = logging.getLogger("everpoll.monitors")

FLUSH_S = 0.1
LIMIT = 100_000
"""How many looks may wait: about 50 MB, or a minute of 1,600 looks a second."""
OUTAGE = Backoff("100ms", cap="5s", jitter=0.2)
CLOSE_S = 5.0


class PendingLook(Struct):
    """A look to be written, and the future of a caller that waits for it."""

    look: NewLook
    written: asyncio.Future[None] | None = None


class Recorder:
    """The looks of one process. Belongs to one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[PendingLook] = deque()
        self._is_urgent = asyncio.Event()
        self._flushing: asyncio.Task[None] | None = None
        self._batch: asyncio.Future[None] | None = None
        """Done when the batch under way is written."""
        self._rng = random.Random()  # noqa: S311 - jitter needs no secure randomness
        self.dropped = 0
        """How many looks were not written: the store was unavailable for too long, or refused them."""
        self.looks: Counter[str] = Counter()
        """How many looks this process made, by status."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, look: NewLook) -> None:
        """Write this look soon."""
        self._append(PendingLook(look))

    async def put(self, look: NewLook) -> None:
        """Write this look, together with others that wait, and return once it is written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._append(PendingLook(look, written))
        self._is_urgent.set()
        await written

    async def drop(self, service: str) -> None:
        """Write no look at this service any more; return once the batch that is being written has ended."""
        kept = []
        for one in self._waiting:
            if one.look.service != service:
                kept.append(one)
            elif one.written is not None and not one.written.done():
                one.written.set_result(None)
        self._waiting = deque(kept)
        if self._batch is not None:
            await asyncio.wait({self._batch})

    async def close(self) -> None:
        """Write the waiting looks, for a few seconds at most."""
        flushing = self._flushing
        if flushing is not None:
            self._is_urgent.set()
            await asyncio.wait({flushing}, timeout=CLOSE_S)
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
        if self._waiting:
            logger.warning("%d looks could not be recorded before the end", len(self._waiting))
        for one in self._waiting:
            if one.written is not None:
                one.written.cancel()
        self._waiting.clear()

    def _append(self, waiting: PendingLook) -> None:
        self.looks[waiting.look.status] += 1
        self._waiting.append(waiting)
        if len(self._waiting) > LIMIT:
            self._drop_oldest()
        if len(self._waiting) >= BATCH_LIMIT:
            self._is_urgent.set()
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="everpoll-recorder")

    def _drop_oldest(self) -> None:
        oldest = self._waiting.popleft()
        if oldest.written is not None and not oldest.written.done():
            oldest.written.set_result(None)
        if self.dropped == 0:
            logger.error("the store is unavailable for too long: the oldest looks are dropped and not recorded")
        self.dropped += 1

    async def _flush(self) -> None:
        """Write until nothing waits."""
        try:
            while self._waiting:
                if not self._is_urgent.is_set():
                    try:
                        async with asyncio.timeout(FLUSH_S):
                            await self._is_urgent.wait()
                    except TimeoutError:
                        pass
                self._is_urgent.clear()
                batch = [self._waiting.popleft() for _ in range(min(BATCH_LIMIT, len(self._waiting)))]
                await self._write_whole(batch)
        finally:
            self._flushing = None

    async def _write_whole(self, batch: list[PendingLook]) -> None:
        ended = self._batch = asyncio.get_running_loop().create_future()
        try:
            await self._write(batch)
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(batch))
            raise
        finally:
            self._batch = None
            ended.set_result(None)

    async def _write(self, batch: Sequence[PendingLook]) -> None:
        failures = 0
        while True:
            try:
                await self._store.health.record([one.look for one in batch])
                break
            except StoreUnavailable as error:
                failures += 1
                delay_s = OUTAGE.delay(failures, self._rng)
                logger.warning("cannot record %d looks: %s; trying again in %s", len(batch), error, human(delay_s))
                await self._store.back_off(delay_s)
            except Exception as error:
                if len(batch) > 1:
                    middle = len(batch) // 2
                    await self._write(batch[:middle])
                    await self._write(batch[middle:])
                    return
                self.dropped += 1
                logger.exception("service %s: a look cannot be recorded: %s", batch[0].look.service, error)
                break
        for one in batch:
            if one.written is not None and not one.written.done():
                one.written.set_result(None)
