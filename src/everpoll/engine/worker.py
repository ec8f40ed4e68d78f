"""A worker: lease → run → settle, for as long as it lives.

    start ──▶ signed on ──▶ polling ──stop──▶ draining (grace) ──▶ canceling ──▶ handing back ──▶ signed off
                  ▲            │
                  └─── lost ───┘   declared dead (it was frozen, or cut off): a new incarnation signs on

Promises: no outage of the database, of any length, ends a worker. It never settles a task whose lease it cannot prove
to hold. At shutdown it takes no new work, hands back at once the tasks that have not begun, gives handlers the grace
period, cancels the rest, hands back unfinished tasks with their attempts refunded, and sends heartbeats until the last
handler has ended.
"""

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence

from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.drivers.wake import Wake
from everpoll.engine.beat_sender import BEATS_PER_LEASE, Fences, HeartbeatTiming, Listeners
from everpoll.engine.heartbeat import Heartbeat
from everpoll.engine.loop_heartbeat import LoopHeartbeat
from everpoll.engine.meter import UNHEALTHY_ERRORS, Meter, PollerHealth
from everpoll.engine.options import WorkerOptions
from everpoll.engine.poll_signals import PollSignals
from everpoll.engine.poller import Capacity, Poller
from everpoll.engine.pool import Observers, Pool
from everpoll.engine.publishing import Cards, Publisher
from everpoll.engine.settler import COALESCE_S, OUTAGE, SettlementListeners, Settler
from everpoll.engine.stop_signals import finish
from everpoll.engine.tally import Batch, Tally
from everpoll.engine.work import StopReason, WorkRegistry
from everpoll.errors import CannotConnect, StoreUnavailable
from everpoll.logs.context import about
from everpoll.policy import Duration, human, seconds, spread
from everpoll.stores.contract import Beat, Ended, Rescued, Source, WorkerCard, encode
from everpoll.version import __version__

logger = logging.getLogger("everpoll.engine")

# At shutdown: how long a poll under way may take to end; how long a canceled handler may clean up after the grace
# period; and how long the last settlements may take to be written.
POLL_END_S = 2.0
CANCEL_S = 2.0
SETTLE_S = 5.0
PRUNE_EVERY_S = 3600.0


class Worker:
    """One worker of this process."""

    def __init__(
        self,
        store: Source,
        works: WorkRegistry,
        options: WorkerOptions,
        on_settled: Callable[[list[int]], None] | None = None,
        loops: Cards | None = None,
        on_ended: Callable[[Iterable[int]], None] | None = None,
    ) -> None:
        """`on_settled` gets the ids of tasks that have ended or have new events; `on_ended` those that this worker has
        ended, each end once. `loops` gives the loops of this process, to be published with the figures of this worker.
        """
        self._store = store
        self._works = works
        self.options = options
        self.meter = Meter()
        self._on_settled = on_settled
        self._on_ended = on_ended
        self.tally = tally = Tally(works.kind_of)
        self._publisher = Publisher(tally, self._store_now, loops)
        self._event_loop = asyncio.get_running_loop()
        patience_s = options.lease_s if options.refusal_patience_s is None else options.refusal_patience_s
        signals = PollSignals()
        listeners = SettlementListeners(self._on_lost, on_settled, signals.freed.set, self._on_written)
        self._settler = settler = Settler(store, self.meter, listeners, self._gather_s, patience_s)
        self._pool = Pool(
            works,
            options.slots,
            settler.add,
            signals.slot_freed,
            store.yield_to_thread,
            Observers(tally, options.label, settler.completed),
        )
        capacity = Capacity(self._pool, lambda: settler.backlog, signals)
        self._poller = Poller(store, works, capacity, options, self.meter, self._sign_on_anew)
        self._heartbeat: Heartbeat | LoopHeartbeat | None = None
        self._polling: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._notes: set[asyncio.Task[None]] = set()
        self._started_at = 0.0

    @property
    def incarnation(self) -> int:
        """The present id of this worker: random, and new after each sign-on."""
        return self._poller.incarnation

    async def start(self) -> None:
        """Sign on and begin to poll; if that fails or is canceled, nothing is left behind."""
        self._started_at = asyncio.get_running_loop().time()
        try:
            await self._sign_on(waits_for_access=False)
            await self._store.listen(self._on_wake)
        except BaseException:
            await self._sign_off()
            raise
        self._settler.start()
        self._polling = asyncio.get_running_loop().create_task(self._poller.run(), name="everpoll-poller")
        self._polling.add_done_callback(_log_if_it_died)
        if self.options.keep_s is not None:
            self._pruning = asyncio.get_running_loop().create_task(
                self._prune(self.options.keep_s), name="everpoll-prune"
            )

    def wake(self) -> None:
        """Poll for due tasks now."""
        self._poller.wake()

    async def stop(self, grace: Duration = "10s") -> None:
        """Shut down within the grace period. Repeatable; canceling it cuts the grace period short."""
        grace_s = seconds(grace, name="grace")
        if self._polling is None:
            return
        polling, self._polling = self._polling, None
        until = asyncio.get_running_loop().time() + grace_s
        self._poller.stop()
        self._pool.stop_waiting(StopReason.SHUTDOWN)
        if len(self._pool):
            logger.info("shutting down: %d tasks have %s to end by themselves", len(self._pool), human(grace_s))
        try:
            if self._pruning is not None:
                self._pruning.cancel()
                await asyncio.gather(self._pruning, return_exceptions=True)
            await asyncio.wait({polling}, timeout=POLL_END_S)
            await self._pool.ended(until - asyncio.get_running_loop().time())
        finally:
            # A cancellation that comes now changes nothing: the rest takes seconds at most.
            await finish(self._hand_back(polling))

    async def _hand_back(self, polling: "asyncio.Task[None]") -> None:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        self._pool.stop(StopReason.SHUTDOWN)
        try:
            if not await self._pool.ended(CANCEL_S):
                for task_id in self._pool.abandon():
                    text = "task %d: its handler does not end although it was canceled; left behind"
                    logger.error(text, task_id, extra=about(task_id=task_id))
            if not await self._settler.drained(SETTLE_S):
                logger.error("%d tasks could not be settled; the rescue will find them", self._settler.backlog)
        finally:
            self._pool.log_withheld_ends()
            await self._settler.stop()
            await self._sign_off()

    async def _sign_off(self) -> None:
        """Stop the heartbeat and sign off, within a bounded time even if the database does not answer."""
        # First, and in any case: while the heartbeat goes on, no worker can rescue the unsettled tasks.
        await self._stop_heartbeat()
        try:
            async with asyncio.timeout(SETTLE_S):
                await asyncio.gather(*self._notes, return_exceptions=True)
                await self._store.unlisten(self._on_wake)
                if self.incarnation:
                    await self._store.sign_off(self.incarnation)
                    logger.info("worker %s signed off", self.options.label)
        except (StoreUnavailable, TimeoutError) as error:
            logger.warning("cannot sign off: %s; its lease runs out", str(error) or "it takes too long")

    async def _prune(self, keep_s: float) -> None:
        """Drop history that is too old, about once an hour. Every worker does it; doing it twice is harmless."""
        rng = random.Random()  # noqa: S311 - spreads a fleet, needs no secrecy
        logged = ""
        while True:
            await asyncio.sleep(spread(PRUNE_EVERY_S, 0.5, rng.random()))
            try:
                dropped = await self._store.prune(keep_s)
            except Exception as error:  # noqa: BLE001 - it is tried again in an hour
                # Logged once: if this role lacks the right, another worker or an operator drops the history.
                text = f"{type(error).__name__}: {error}"
                logger.log(logging.DEBUG if text == logged else logging.WARNING, "cannot drop old history: %s", text)
                logged = text
            else:
                logged = ""
                logger.debug("dropped %d partitions or rows of history older than %s", dropped, human(keep_s))

    def health(self) -> PollerHealth:
        """Return metrics over a window, and whether the worker is healthy. A worker without work is healthy."""
        now = asyncio.get_running_loop().time()
        polling = self._polling is not None and not self._polling.done()
        meter, heartbeat = self.meter, self._heartbeat
        is_fenced = heartbeat is not None and heartbeat.sender.is_fenced
        return PollerHealth(
            healthy=polling and not is_fenced and meter.consecutive_errors < UNHEALTHY_ERRORS,
            polling=polling,
            consecutive_errors=meter.consecutive_errors,
            last_error=meter.last_error,
            polls_per_minute=meter.polls_per_minute(now, self._started_at),
            rows_per_poll=meter.rows_per_poll(now),
            lease_success_rate=meter.lease_success_rate(now),
            lease_latency_s=meter.lease_latency_s(now),
            push=self._store.has_push,
            waiting_s=self._poller.waiting_s,
            running=len(self._pool),
            slots=self._pool.slots,
            stopping=self._pool.stopping,
            heartbeat_age_s=None if heartbeat is None else heartbeat.sender.silence_s,
            is_fenced=is_fenced,
        )

    async def _sign_on(self, *, waits_for_access: bool) -> None:
        """Sign on under a new incarnation; wait for the database as long as it takes.

        If the database refuses the role, this raises `CannotConnect`, unless `waits_for_access`: the worker ran before.
        """
        card = WorkerCard(
            incarnation=secrets.randbits(63),
            label=self.options.label,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(self.options.queues or self._works.queues),
            slots=self.options.slots,
            version=__version__,
            names=tuple(self._works.registered),
            limits=self._works.limits,
            aging_s=self.options.aging_s,
        )
        failures, rng = 0, random.Random()  # noqa: S311 - spreads a fleet, no secret
        warnings = RepeatedWarnings(logger, "signing on", event_loop_time)
        while True:
            try:
                await self._store.sign_on(card, self.options.lease_s)
                warnings.works()
                break
            except StoreUnavailable as error:
                if isinstance(error, CannotConnect) and not waits_for_access:
                    raise
                failures += 1
                delay_s = OUTAGE.delay(failures, rng)
                self.meter.failed(str(error))
                warnings.failed(error, "cannot sign on: %s; trying again in %s", error, human(delay_s))
                await self._store.back_off(delay_s)
        self._poller.incarnation = card.incarnation
        lease_s, beat_s = self.options.lease_s, self.options.beat_s
        timing = HeartbeatTiming(lease_s, lease_s / BEATS_PER_LEASE if beat_s is None else beat_s)
        listeners = Listeners(
            lambda beat: self._on_beat(card.incarnation, beat),
            self._on_rescued,
            self.meter.beat_failed,
            self._on_silence,
        )
        kind = LoopHeartbeat if self._store.beats_in_loop else Heartbeat
        self._publisher.begin(card.incarnation)
        publish = self._publisher.publish
        self._heartbeat = kind(
            self._store.heartbeat_connection, card.incarnation, timing, self._held, listeners, publish
        )
        # The first beat resumes it. Tasks that are leased without a heartbeat would only be rescued.
        self._poller.pause()
        self._heartbeat.start()
        logger.info("worker %s signed on as %016x", card.label, card.incarnation)

    def _gather_s(self) -> float:
        """Return how long a settlement waits for others."""
        if self.options.gather_s is not None and self._pool.is_saturated:
            return self.options.gather_s
        return COALESCE_S if len(self._pool) else 0.0

    def _held(self) -> tuple[Sequence[int], Fences]:
        """Return the running tasks.

        Also return those that the rescue must take: overdue ones, and those not settled.
        """
        running, overdue = self._pool.running()
        return running, [*overdue, *self._settler.stuck()]

    async def _sign_on_anew(self) -> None:
        logger.error("worker %s was declared dead; it drops what it held and signs on anew", self.options.label)
        self._pool.stop(StopReason.LOST)
        await self._stop_heartbeat()
        await self._sign_on(waits_for_access=True)

    async def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            await self._heartbeat.stop()
            self._heartbeat = None

    def _on_beat(self, incarnation: int, beat: Beat) -> None:
        if incarnation != self.incarnation:
            return
        self.meter.beat_answered()
        if not beat.is_alive:
            self._pool.stop(StopReason.LOST)
            # The next poll gets the same answer, and signs on again. Missed heartbeats may have paused the poller.
            self._poller.resume()
            self._poller.wake()
            return
        self._poller.resume()
        if beat.canceled:
            self._pool.stop(StopReason.CANCELED, beat.canceled)
        if beat.rescued:
            self._on_rescued(Rescued(beat.rescued))

    def _store_now(self) -> float:
        return self.meter.store_now(self._event_loop.time(), time.time())

    def _on_written(self, batch: Batch, lost: set[int]) -> None:
        self.tally.settled(batch, lost, self._store_now())
        if self._on_ended is not None:
            self._on_ended(one.id for one in batch.settlements if one.__class__ is Ended and one.id not in lost)

    def _on_rescued(self, rescued: Rescued) -> None:
        self.tally.rescued(rescued.tasks, self._store_now())
        logger.warning("rescued %d tasks from lost workers or past deadlines", rescued.tasks)
        self._poller.wake()
        if rescued.ended and self._on_settled is not None:
            self._on_settled(list(rescued.ended))
        if rescued.ended and self._on_ended is not None:
            self._on_ended(rescued.ended)

    def _on_wake(self, wake: Wake) -> None:
        if wake.cancel and len(self._pool) and self._heartbeat is not None:
            self._heartbeat.beat_now()
        self._poller.wake(wake)

    def _on_silence(self, silence_s: float) -> None:
        self._poller.pause()
        if len(self._pool):
            logger.error("no heartbeat for %s: canceling %d handlers", human(silence_s), len(self._pool))
            self._pool.stop(StopReason.FENCED)

    def _on_lost(self, task_ids: Iterable[int]) -> None:
        """Log that results were dropped, and record it beside the tasks."""
        for task_id in task_ids:
            logger.warning("task %d: the lease was lost, its result is dropped", task_id, extra=about(task_id=task_id))
            note = encode(
                {"what": "loss", "by": self.options.label, "why": "the lease was lost: its result is dropped"}
            )
            noting = asyncio.get_running_loop().create_task(self._note(task_id, note))
            self._notes.add(noting)
            noting.add_done_callback(self._notes.discard)

    async def _note(self, task_id: int, note: str) -> None:
        try:
            await self._store.note_loss(task_id, note)
        except Exception as error:  # noqa: BLE001 - a loss that cannot be recorded must not end the worker
            extra = about(task_id=task_id)
            logger.warning("task %d: the loss could not be recorded: %s", task_id, error, extra=extra)


def _log_if_it_died(polling: asyncio.Task[None]) -> None:
    if not polling.cancelled() and (error := polling.exception()) is not None:
        logger.critical("the poller died: this worker takes no more work", exc_info=error)
