"""Settlements on their way to the store: coalesced, fenced, never forgotten.

Promises: what is added is settled or reported as lost, over any outage: while the store is away, settlements wait
and are tried again. One statement is under way at a time; what ends meanwhile shares the next one.
Never: settles under another incarnation than the one that leased.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from everpoll.engine.meter import Meter
from everpoll.errors import StoreUnavailable
from everpoll.policy import Backoff
from everpoll.stores.contract import Ended, Settlement, Source, encode

logger = logging.getLogger("everpoll.engine")

BATCH = 500
# Measured: handlers that end together are settled together; longer adds latency and no throughput.
COALESCE_S = 0.002
OUTAGE = Backoff("100ms", cap="5s", jitter=0.2)


class Settler:
    """The queue of settlements of one worker."""

    def __init__(self, store: Source, meter: Meter, on_lost: Callable[[Iterable[int]], None]) -> None:
        self._store = store
        self._meter = meter
        self._on_lost = on_lost
        self._waiting: list[tuple[int, Settlement]] = []
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_busy: Callable[[], bool] = lambda: False
        self.on_settled: Callable[[list[int]], None] | None = None
        self.on_shorter: Callable[[], None] = lambda: None
        self._rng = random.Random()  # noqa: S311 - jitter is no secret
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to settle."""
        self._task = asyncio.get_running_loop().create_task(self._work(), name="everpoll-settler")

    def add(self, incarnation: int, settlement: Settlement) -> None:
        """Settle this soon."""
        self._waiting.append((incarnation, settlement))
        if not self._added.is_set():
            self._added.set()
            self._idle.clear()

    @property
    def backlog(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def drained(self, timeout_s: float) -> bool:
        """Wait until nothing waits; False if that took too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End; what still waits is left to the rescue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            await self._added.wait()
            if len(self._waiting) < BATCH and self.is_busy():
                await asyncio.sleep(COALESCE_S)
            incarnation = self._waiting[0][0]
            batch: list[Settlement] = []
            for owner, settlement in self._waiting:
                if owner != incarnation or len(batch) == BATCH:
                    break
                batch.append(settlement)
            await self._settle(incarnation, batch)
            del self._waiting[: len(batch)]
            self.on_shorter()
            if not self._waiting:
                self._added.clear()
                self._idle.set()

    async def _settle(self, incarnation: int, batch: list[Settlement]) -> None:
        try:
            lost = await self._settled(incarnation, batch)
        except Exception as error:
            # Not an outage: the store refuses something in the batch. One bad result must not stop the others.
            logger.exception("the store refuses a batch of %d settlements", len(batch))
            await self._settle_one_by_one(incarnation, batch, error)
            return
        self._meter.settlement(asyncio.get_running_loop().time(), len(batch), len(lost))
        if lost:
            self._on_lost(lost)
        if self.on_settled is not None:
            self.on_settled([one.id for one in batch])

    async def _settled(self, incarnation: int, batch: list[Settlement]) -> set[int]:
        failures = 0
        while True:
            try:
                lost = await self._store.settle(incarnation, batch)
                return await self._really_lost(incarnation, batch, lost) if lost and failures else lost
            except StoreUnavailable as error:
                failures += 1
                delay_s = OUTAGE.delay(failures, self._rng)
                logger.warning("cannot settle %d tasks: %s; trying again in %.1f s", len(batch), error, delay_s)
                await asyncio.sleep(delay_s)

    async def _really_lost(self, incarnation: int, batch: list[Settlement], lost: set[int]) -> set[int]:
        """The try that broke off may have been committed: what it settled is not lost."""
        return lost - await self._store.settled_before(incarnation, [one for one in batch if one.id in lost])

    async def _settle_one_by_one(self, incarnation: int, batch: list[Settlement], error: Exception) -> None:
        for settlement in batch:
            if len(batch) > 1:
                await self._settle(incarnation, [settlement])
                continue
            note = encode({"what": "failed", "error": f"its result cannot be stored: {error}"})
            try:
                await self._settled(incarnation, [Ended(settlement.id, settlement.sequence, "failed", None, note)])
            except Exception:
                logger.exception("task %d cannot be settled at all; the rescue will find it", settlement.id)
