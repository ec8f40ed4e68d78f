"""Settlements on their way to the store: coalesced, fenced, never forgotten.

Promises: what is added is settled or reported as lost, over any outage: while the store is away, settlements wait
and are tried again. One statement is under way at a time; what ends meanwhile shares the next one, up to BATCH
settlements and STATEMENT_BYTES. A statement that the store refuses is split until only the culprit is left, which
`refused` deals with. Never: settles under another incarnation than the one that leased.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.engine.meter import Meter
from everpoll.engine.refusals import may_be_of_one
from everpoll.engine.refused import Refused
from everpoll.policy import Backoff
from everpoll.stores.contract import Ended, Settlement, Source
from everpoll.stores.limits import STATEMENT_BYTES, in_portions, settlement_bytes

logger = logging.getLogger("everpoll.engine")

BATCH = 500
# Measured: handlers that end together are settled together; longer adds latency and no throughput.
COALESCE_S = 0.002
OUTAGE = Backoff("100ms", cap="5s", jitter=0.2)
PATIENCE_S = 30.0


class NotSettled(Exception):
    """The store refuses a batch. `is_repeat`: an earlier try, whose answer got lost, may have settled it."""

    def __init__(self, error: Exception, is_repeat: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_repeat = is_repeat


def _ignore() -> None:
    """Do nothing about a shorter backlog."""


@dataclass(frozen=True, slots=True)
class SettlementListeners:
    """What the settler tells its worker."""

    on_lost: Callable[[Iterable[int]], None]
    """Gets the ids of the tasks whose results were dropped."""
    on_settled: Callable[[list[int]], None] | None = None
    """Gets the ids of the tasks that have ended or have new events."""
    on_shorter: Callable[[], None] = _ignore
    """Called after each statement: fewer settlements wait."""
    on_written: Callable[[list[Settlement], set[int]], None] | None = None
    """Gets each batch that the store has written, and the ids that were lost."""


def _at_once() -> float:
    return 0.0


class Settler:
    """The queue of settlements of one worker. `gather_s` says how long to wait now for handlers that end together."""

    def __init__(
        self,
        store: Source,
        meter: Meter,
        listeners: SettlementListeners,
        gather_s: Callable[[], float] = _at_once,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._store = store
        self._meter = meter
        self._listeners = listeners
        self._gather_s = gather_s
        self._waiting: list[tuple[int, Settlement]] = []
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._rng = random.Random()  # noqa: S311 - jitter is no secret
        self._warnings = RepeatedWarnings(logger, "settling", event_loop_time)
        self._refused = Refused(self._settle_alone, patience_s, self._shorter)
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
        """How many wait, those that the store refuses included."""
        return len(self._waiting) + len(self._refused)

    def stuck(self) -> list[tuple[int, int]]:
        """Id and sequence of the tasks that the store lets neither end nor be handed back: for the rescue to take."""
        return self._refused.stuck()

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
        await self._refused.stop()

    async def _work(self) -> None:
        while True:
            await self._added.wait()
            if len(self._waiting) < BATCH and (gather_s := self._gather_s()) > 0:
                await asyncio.sleep(gather_s)
            incarnation, batch = self._portion()
            await self._settle(incarnation, batch)
            del self._waiting[: len(batch)]
            if not self._waiting:
                self._added.clear()
            self._shorter()

    def _portion(self) -> tuple[int, list[Settlement]]:
        """The first that wait, of one incarnation, as many as one statement carries."""
        incarnation = self._waiting[0][0]
        first = self._waiting[:BATCH]
        batch = [settlement for owner, settlement in first if owner == incarnation]
        if len(batch) < len(first):  # the worker has signed on anew meanwhile
            batch = [settlement for _, settlement in itertools.takewhile(lambda one: one[0] == incarnation, first)]
        sizes = list(map(settlement_bytes, batch))
        if sum(sizes) > STATEMENT_BYTES:
            batch = list(next(in_portions(batch, sizes, BATCH)))
        return incarnation, batch

    def _shorter(self) -> None:
        if not self.backlog:
            self._idle.set()
        self._listeners.on_shorter()

    async def _settle(self, incarnation: int, batch: list[Settlement], *, is_repeat: bool = False) -> None:
        try:
            await self._settle_all(incarnation, batch, is_repeat)
        except NotSettled as refused:
            if len(batch) == 1:
                self._refused.add(incarnation, batch[0], refused.error, refused.is_repeat)
                return
            logger.warning("the store refuses a batch of %d settlements: %s; splitting it", len(batch), refused.error)
            middle = len(batch) // 2
            await self._settle(incarnation, batch[:middle], is_repeat=refused.is_repeat)
            await self._settle(incarnation, batch[middle:], is_repeat=refused.is_repeat)

    async def _settle_alone(self, incarnation: int, settlement: Settlement, is_repeat: bool) -> None:
        await self._settle_all(incarnation, [settlement], is_repeat)

    async def _settle_all(self, incarnation: int, batch: list[Settlement], is_repeat: bool) -> None:
        """Settle the batch, however long the store is away. Raises `NotSettled` if the store refuses it."""
        failures = 0
        while True:
            try:
                lost = await self._store.settle(incarnation, batch)
                if lost and (is_repeat or failures):
                    lost = await self._really_lost(incarnation, batch, lost)
            except Exception as error:
                if may_be_of_one(error):
                    raise NotSettled(error, is_repeat or failures > 0) from error
                failures += 1
                delay_s = OUTAGE.delay(failures, self._rng)
                what = "cannot settle %d tasks: %s; trying again in %.1f s"
                self._warnings.failed(error, what, len(batch), error, delay_s)
                await self._store.back_off(delay_s)
            else:
                self._warnings.works()
                self._record(batch, lost)
                return

    def _record(self, batch: list[Settlement], lost: set[int]) -> None:
        self._meter.settlement(asyncio.get_running_loop().time(), len(batch), len(lost))
        if self._listeners.on_written is not None:
            self._listeners.on_written(batch, lost)
        if lost:
            self._listeners.on_lost(lost)
        # Callers wait for ends and events; most looks of a watch settle without either.
        on_settled = self._listeners.on_settled
        if on_settled is not None and (news := [one.id for one in batch if one.events or isinstance(one, Ended)]):
            on_settled(news)

    async def _really_lost(self, incarnation: int, batch: list[Settlement], lost: set[int]) -> set[int]:
        """Of those that are lost, the ones that no earlier try has settled."""
        return lost - await self._store.settled_before(incarnation, [one for one in batch if one.id in lost])
