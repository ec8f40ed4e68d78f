"""Settler: writes settlements to the store, many in one statement.

Promises: every settlement that was added is written or reported as lost, over any outage: while the store is away,
settlements wait and are tried again. One statement is under way at a time; settlements that are added meanwhile share
the next one, up to BATCH of them and STATEMENT_BYTES. A statement that the store refuses is split until only the
refused settlement is left, which `RefusedSettlements` takes. Never: settles under another incarnation than that of the
lease.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.engine.batch_errors import may_be_one_items_fault
from everpoll.engine.meter import Meter
from everpoll.engine.refused_settlements import RefusedSettlements
from everpoll.engine.tally import Batch
from everpoll.engine.tally_entry import Entry
from everpoll.policy import Backoff
from everpoll.stores.contract import Ended, Settlement, Source
from everpoll.stores.limits import all_plain, in_portions, settlement_bytes

logger = logging.getLogger("everpoll.engine")

BATCH = 500
# Long enough to settle handlers that end together; measured: a longer wait adds latency and no throughput.
COALESCE_S = 0.002
OUTAGE = Backoff("100ms", cap="5s", jitter=0.2)
PATIENCE_S = 30.0

_id = attrgetter("id")


class NotSettled(Exception):
    """The store refuses a batch. `is_repeat` is True if an earlier try, whose answer got lost, may have settled it."""

    def __init__(self, error: Exception, is_repeat: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_repeat = is_repeat


def _ignore() -> None:
    """Do nothing about a shorter backlog."""


@dataclass(frozen=True, slots=True)
class SettlementListeners:
    """The worker's callbacks for its settler."""

    on_lost: Callable[[Iterable[int]], None]
    """Gets the ids of the tasks whose results were dropped."""
    on_settled: Callable[[list[int]], None] | None = None
    """Gets the ids of the tasks that have ended or have new events."""
    on_shorter: Callable[[], None] = _ignore
    """Called after each statement: fewer settlements wait."""
    on_written: Callable[[Batch, set[int]], None] | None = None
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
        self._waiting: list[tuple[int, Settlement, Entry | None, float]] = []
        self._refused_ends: dict[tuple[int, int], tuple[Entry | None, float]] = {}
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._rng = random.Random()  # noqa: S311 - jitter needs no secrecy
        self._warnings = RepeatedWarnings(logger, "settling", event_loop_time)
        self._refused = RefusedSettlements(self._settle_alone, patience_s, self._shorter)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to settle."""
        self._task = asyncio.get_running_loop().create_task(self._work(), name="everpoll-settler")

    def add(self, incarnation: int, settlement: Settlement, entry: Entry | None = None, took_s: float = 0.0) -> None:
        """Write this settlement soon; count its end and the duration of its run in `entry`. Called once a run."""
        if not self._waiting:
            self._added.set()
            self._idle.clear()
        self._waiting.append((incarnation, settlement, entry, took_s))

    def completed(
        self, incarnation: int, settlement: Settlement, entry: Entry | None = None, took_s: float = 0.0, /
    ) -> None:
        """Record the end of a task that its handler has settled in a transaction of its own."""
        self._record(Batch([settlement], [entry], [took_s]), set())

    @property
    def backlog(self) -> int:
        """How many settlements wait, including those that the store refuses."""
        return len(self._waiting) + len(self._refused)

    def stuck(self) -> list[tuple[int, int]]:
        """Return the id and the sequence of each task that the store refuses to settle: the rescue must take it."""
        return self._refused.stuck()

    async def drained(self, timeout_s: float) -> bool:
        """Wait until all settlements are written; return False if that takes longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Stop; the rescue takes the tasks whose settlements still wait."""
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
            del self._waiting[: len(batch.settlements)]
            if not self._waiting:
                self._added.clear()
            self._shorter()

    def _portion(self) -> tuple[int, Batch]:
        """Take the first settlements of one incarnation, as many as one statement carries."""
        incarnations, *columns = zip(*self._waiting[:BATCH], strict=True)
        batch = Batch(*columns)
        incarnation, count = incarnations[0], len(incarnations)
        if incarnations.count(incarnation) < count:  # the worker has signed on anew meanwhile
            count = next(place for place, one in enumerate(incarnations) if one != incarnation)
        if not all_plain(batch.settlements):
            own = batch.settlements[:count]
            count = len(next(in_portions(own, list(map(settlement_bytes, own)), BATCH)))
        return incarnation, batch if count == len(incarnations) else batch.part(0, count)

    def _shorter(self) -> None:
        if not self.backlog:
            self._idle.set()
        self._listeners.on_shorter()

    async def _settle(self, incarnation: int, batch: Batch, *, is_repeat: bool = False) -> None:
        try:
            await self._settle_all(incarnation, batch, is_repeat)
        except NotSettled as refused:
            count, first = len(batch.settlements), batch.settlements[0]
            if count == 1:
                self._refused_ends[first.id, first.sequence] = (batch.entries[0], batch.times_s[0])
                self._refused.add(incarnation, first, refused.error, refused.is_repeat)
                return
            logger.warning("the store refuses a batch of %d settlements: %s; splitting it", count, refused.error)
            await self._settle(incarnation, batch.part(0, count // 2), is_repeat=refused.is_repeat)
            await self._settle(incarnation, batch.part(count // 2, count), is_repeat=refused.is_repeat)

    async def _settle_alone(self, incarnation: int, settlement: Settlement, is_repeat: bool) -> None:
        fence = (settlement.id, settlement.sequence)
        entry, took_s = self._refused_ends.get(fence, (None, 0.0))
        await self._settle_all(incarnation, Batch([settlement], [entry], [took_s]), is_repeat)
        self._refused_ends.pop(fence, None)

    async def _settle_all(self, incarnation: int, batch: Batch, is_repeat: bool) -> None:
        """Settle the batch, however long the store is away. Raises `NotSettled` if the store refuses it."""
        failures = 0
        while True:
            try:
                lost = await self._store.settle(incarnation, batch.settlements)
                if lost and (is_repeat or failures):
                    lost = await self._really_lost(incarnation, batch.settlements, lost)
            except Exception as error:
                if may_be_one_items_fault(error):
                    raise NotSettled(error, is_repeat or failures > 0) from error
                failures += 1
                delay_s = OUTAGE.delay(failures, self._rng)
                what = "cannot settle %d tasks: %s; trying again in %.1f s"
                self._warnings.failed(error, what, len(batch.settlements), error, delay_s)
                await self._store.back_off(delay_s)
            else:
                self._warnings.works()
                self._record(batch, lost)
                return

    def _record(self, batch: Batch, lost: set[int]) -> None:
        self._meter.settlement(asyncio.get_running_loop().time(), len(batch.settlements), len(lost))
        if self._listeners.on_written is not None:
            self._listeners.on_written(batch, lost)
        if lost:
            self._listeners.on_lost(lost)
        # Callers wait for ends and events; most looks of a watch settle without either.
        on_settled = self._listeners.on_settled
        if on_settled is not None:
            reported = [one for one in batch.settlements if one.__class__ is Ended or one.events]
            if reported:
                on_settled(list(map(_id, reported)))

    async def _really_lost(self, incarnation: int, batch: Sequence[Settlement], lost: set[int]) -> set[int]:
        """Return the lost tasks without those that an earlier try has settled."""
        return lost - await self._store.settled_before(incarnation, [one for one in batch if one.id in lost])
