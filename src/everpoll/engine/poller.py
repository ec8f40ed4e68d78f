"""The poller: queries the store for due tasks as often as needed, and no more often.

    something found ──▶ poll again at once     nothing found ──▶ rest: 5, 5, 7.5 … 30 s, under push 30 … 60 s
      (under push, if that was all: rest)
    slots are full  ──▶ wait for a free slot   a rest ends early at the next due time and at a wake-up

Promises: the poller never leases more tasks than there are free slots. A poll that fails is tried up to three times, is
logged and counted, and never stops the poller. Every poll is logged at debug level, every lease at info.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from everpoll.drivers.wake import NOW, Wake
from everpoll.engine.meter import Meter
from everpoll.engine.options import WorkerOptions
from everpoll.engine.poll_signals import PollSignals
from everpoll.engine.pool import Pool
from everpoll.engine.work import WorkRegistry
from everpoll.errors import EverpollError, LeaseLost
from everpoll.policy import Backoff, human
from everpoll.stores.contract import LEASE_LIMIT, Leased, Source

logger = logging.getLogger("everpoll.engine")

TRIES = 3
RETRY = Backoff("1s", cap="10s", jitter=0, steady=0)
# Slots that become free together are filled together.
GATHER_S = 0.002
# Where polls are costly, handlers that are about to end are waited for so long, unless this share of the slots is free:
# else two halves of the slots are filled in turn, with twice as many polls.
GATHERED_SHARE = 0.8
# The store's clock decides when a task is due; ours may run a little ahead of it.
DUE_SLACK_S = 0.001
# Tasks that fall due within this time of one another are leased by one poll (measured with 1,250 looks of watches a
# second: a third less CPU than with a poll for each, for 2 ms of lateness).
DUE_TOGETHER_S = 0.005
# A task that is due and was not leased: another transaction has locked its row for the moment.
HELD_REST_S = 0.05
AFTER_CANCEL_S = 600.0
"""After a request to cancel, every wake-up causes a poll for this time: longer than a canceled handler still runs."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What bounds how much a worker leases."""

    pool: Pool
    """Its free slots."""
    backlog: Callable[[], int]
    """How many settlements wait to be written."""
    signals: PollSignals
    """How the poller learns that there is room again."""


class Poller:
    """Leases tasks of one store for one pool; calls `on_lost` once other workers have declared this one dead."""

    def __init__(
        self,
        store: Source,
        works: WorkRegistry,
        capacity: Capacity,
        options: WorkerOptions,
        meter: Meter,
        on_lost: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._works = works
        self._pool = capacity.pool
        self._backlog = capacity.backlog
        self._signals = capacity.signals
        self._options = options
        self._meter = meter
        self._on_lost = on_lost
        self._stopping = asyncio.Event()
        self._may_lease = asyncio.Event()
        self._may_lease.set()
        self._rng = random.Random()  # noqa: S311 - jitter needs no secrecy
        self._empty = 0
        self._is_more_due = False
        self._is_costly = False
        self.waiting_s: float | None = None
        self._rest_until: float | None = None
        self._polls_on_any_wake_until = 0.0
        self._polled_at = 0.0
        self.incarnation = 0

    def wake(self, wake: Wake = NOW) -> None:
        """Poll now, unless the tasks are due later and the next poll comes in time for them.

        A cancel that was requested during a run makes its task due at once, whatever delay the run settles with. So for
        a while after such a request, every wake-up causes a poll.
        """
        now, until = asyncio.get_running_loop().time(), self._rest_until
        if wake.cancel:
            self._polls_on_any_wake_until = now + AFTER_CANCEL_S
        may_sleep = self._store.has_push and now >= self._polls_on_any_wake_until
        if wake.due_s <= 0 or not may_sleep or until is None or now + wake.due_s < until:
            self._signals.woken.set()

    def pause(self) -> None:
        """Lease nothing: without a heartbeat, leased tasks would only be rescued."""
        self._may_lease.clear()

    def resume(self) -> None:
        """Lease again: heartbeats are answered."""
        self._may_lease.set()

    def stop(self) -> None:
        """Take no new work. A poll under way ends first, and the tasks that it leases are handed back at once."""
        self._stopping.set()
        self._signals.woken.set()
        self._signals.freed.set()
        self._may_lease.set()

    async def run(self) -> None:
        """Poll until stopped or canceled."""
        while not self._stopping.is_set():
            if not self._may_lease.is_set():
                await self._may_lease.wait()
                continue
            rooms, most = self._room_by_queue()
            if most <= 0 or (self._signals.full_queues and not rooms) or self._backlog() > 2 * LEASE_LIMIT:
                await self._wait_for_slot()
                continue
            if (gather_s := self._gather_s()) > 0:
                await asyncio.sleep(gather_s)
            try:
                found = await self._poll()
            except LeaseLost:
                await self._sign_on_anew()
                continue
            self._is_costly = found is not None and found.is_costly
            self._is_more_due = found is not None and not found.is_all and bool(found.leases)
            if self._stopping.is_set():
                self._pool.hand_back(found.leases if found else (), self.incarnation)
            elif found is None:
                # The poll failed, which is not an empty poll: the rests do not grow. Push may have failed as well.
                await self._wait(self._options.poll.delay(1))
            elif found.leases:
                self._empty = 0
                self._pool.start(found.leases, self.incarnation, found.at, found.waited_us)
                if found.is_all and self._store.has_push and not self._has_filled(rooms, found):
                    await self._rest(found.next_due_s)
            else:
                await self._rest(found.next_due_s)

    def _gather_s(self) -> float:
        """Return how long to wait for handlers that are about to end, so that one poll fills their slots too."""
        if self._is_more_due and self._options.gather_s is not None and self._pool.is_saturated:
            return self._options.gather_s
        return GATHER_S if self._is_costly and self._pool.free < self._pool.slots * GATHERED_SHARE else 0.0

    async def _sign_on_anew(self) -> None:
        try:
            await self._on_lost()
        except Exception as error:
            self._meter.failed(f"{type(error).__name__}: {error}")
            logger.exception("signing on anew failed; trying again")
            await self._wait(RETRY.delay(1))

    async def _poll(self) -> Leased | None:
        """Poll the store, up to three times; return None if all of them failed."""
        event_loop = asyncio.get_running_loop()
        for attempt in range(1, TRIES + 1):
            if self._stopping.is_set():
                break
            self._signals.woken.clear()  # before the poll: a wake-up during it must not be lost
            rooms, most = self._room_by_queue()
            self._polled_at = began = event_loop.time()
            try:
                found = await self._store.lease(self.incarnation, rooms, most)
            except LeaseLost:
                raise
            except Exception as error:
                self._meter.failed(f"{type(error).__name__}: {error}")
                level = logging.WARNING if isinstance(error, EverpollError) else logging.ERROR
                logger.log(level, "poll %d of %d failed: %s", attempt, TRIES, error, exc_info=level > logging.WARNING)
                if attempt < TRIES:
                    await self._wait(RETRY.delay(attempt))
                continue
            now = event_loop.time()
            self._meter.polled(now, len(found.leases), now - began, found.missed, found.at)
            missed = f", {found.missed} already leased by others" if found.missed else ""
            logger.debug("polled %s: %d of %d%s", ", ".join(rooms), len(found.leases), most, missed)
            if found.leases and logger.isEnabledFor(self._options.lease_level):
                logger.log(self._options.lease_level, "leased %s: %s", _counted(len(found.leases)), _listed(found))
            return found
        return None

    def _room_by_queue(self) -> tuple[dict[str, int], int]:
        free = self._pool.free
        most = min(free, LEASE_LIMIT)
        if self._options.queues is None:
            return dict.fromkeys(self._works.queues, most), most
        running = self._pool.running_by_queue()
        rooms = {queue: limit - running[queue] for queue, limit in self._options.queues.items()}
        self._signals.full_queues = {queue for queue, room in rooms.items() if room <= 0}
        rooms |= dict.fromkeys(self._works.internal_queues, most)
        return {queue: min(most, room) for queue, room in rooms.items() if room > 0}, most

    def _has_filled(self, rooms: dict[str, int], found: Leased) -> bool:
        """Return True if some queue got as many tasks as it had room for: more of them may be due."""
        if self._options.queues is None:
            return False
        taken = Counter(lease.queue for lease in found.leases)
        return any(taken[queue] >= room for queue, room in rooms.items())

    async def _wait_for_slot(self) -> None:
        """Wait for a free slot or a shorter backlog; then wait a moment for more free slots."""
        self._signals.freed.clear()
        self._signals.is_slot_awaited = True
        try:
            await self._signals.freed.wait()
        finally:
            self._signals.is_slot_awaited = False
        if self._pool.free < self._pool.slots // 2:
            await asyncio.sleep(GATHER_S)

    async def _rest(self, next_due_s: float | None) -> None:
        self._empty += 1
        cadence = self._options.safety_poll if self._store.has_push else self._options.poll
        rest_s = cadence.delay(self._empty, self._rng, at_most_s=cadence.cap_s)
        if next_due_s is not None:
            due_s = max(next_due_s + DUE_SLACK_S, self._together_s()) if next_due_s > 0 else HELD_REST_S
            rest_s = min(rest_s, due_s)
        logger.debug("nothing more due: next poll in %s", human(rest_s))
        await self._wait(rest_s)

    def _together_s(self) -> float:
        """Return how long to wait so that one poll leases the tasks that fall due shortly after one another."""
        return self._polled_at + DUE_TOGETHER_S - asyncio.get_running_loop().time()

    async def _wait(self, rest_s: float) -> None:
        self.waiting_s = rest_s
        self._rest_until = asyncio.get_running_loop().time() + rest_s
        try:
            async with asyncio.timeout(rest_s):
                await self._signals.woken.wait()
                self._empty = 0
        except TimeoutError:
            pass
        finally:
            self.waiting_s = self._rest_until = None


def _counted(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _listed(found: Leased) -> str:
    shown = ", ".join(lease.label for lease in found.leases[:5])
    return shown if len(found.leases) <= 5 else f"{shown}, …"
