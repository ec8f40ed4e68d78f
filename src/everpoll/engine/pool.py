"""The running handlers of one worker: its slots, and what happens to a handler that is stopped.

    leased ──▶ waiting ──carrier──▶ begun ──▶ settled, slot free

A carrier is an asyncio task that makes one run after the other, as long as no run suspends: an asyncio task for each
run would cost more than all the rest of the engine. The first run that suspends keeps its carrier until it ends. A
spare carrier, which was scheduled before, then makes the runs that wait.

Promises: there are never more handlers than slots; each run yields exactly one settlement, whatever its handler does. A
handler that goes on after its deadline although it was canceled holds no slot: the pool settles its task, runs others
in its place, and ignores its late end. A handler is canceled for a reason, and the reason decides: `canceled` ends the
task, the others hand it back. A run that is stopped before it has begun is settled at once, however busy the event loop
is, and never begins. No run sees the context variables of another run, and a cancellation for one run hits no other.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import Protocol

from everpoll.engine.run_log import RunLogger
from everpoll.engine.tally import Tally
from everpoll.engine.tally_entry import Entry
from everpoll.engine.tracing import traced, tracer
from everpoll.engine.unfinished import broken, stopped, unknown
from everpoll.engine.work import Run, StopReason, WorkRegistry
from everpoll.logs.context import SUBJECT, about
from everpoll.policy import human
from everpoll.stores.contract import DEADLINE_GRACE_S, Ended, Lease, Settlement

logger = logging.getLogger("everpoll.engine")

_name = attrgetter("name")

# How long one carrier may keep the event loop busy.
CARRY_S = 0.001
# After this many runs without a pause, a store that works in a thread of its own gets a moment to go on.
TURN_RUNS = 50
# How long a handler that was canceled at its deadline may take to end: a second less than the rescue waits, so that
# this worker settles what it still can settle.
OVERDUE_S = DEADLINE_GRACE_S - 1.0
SPARE_SHARE = 1 / 8
"""The share of the slots below which the free ones count as few: then the pool is saturated."""


def _ignore(_queue: str) -> None:
    """Do nothing about a free slot."""


class Settle(Protocol):
    """How the pool passes on a settlement."""

    def __call__(
        self, incarnation: int, settlement: Settlement, entry: Entry | None = None, took_s: float = 0.0, /
    ) -> None:
        """Settle it; count its end and the duration of its run in `entry`, which is None if the run never began."""


@dataclass(frozen=True, slots=True)
class Observers:
    """The parts that record the runs of a pool."""

    tally: Tally | None = None
    worker: str = ""
    """The label of the worker, for the log."""
    on_completed: Settle | None = None
    """Gets the ends that are in the store already; None: they are settled like all others."""


class Pool:
    """Runs the handlers of leased tasks, and passes each settlement on.

    `on_freed` gets the queue of each run that has ended. `on_turn` is called in the middle of many runs that follow one
    another, none of which waits for anything.
    """

    def __init__(
        self,
        works: WorkRegistry,
        slots: int,
        settle: Settle,
        on_freed: Callable[[str], None] = _ignore,
        on_turn: Callable[[], None] | None = None,
        observers: Observers = Observers(),  # noqa: B008 - frozen
    ) -> None:
        self._on_completed = observers.on_completed
        self._tally = observers.tally
        self.worker = observers.worker
        self._run_log = RunLogger()
        self._logs_starts = self._logs_ends = False
        self._tracer = tracer()
        self._works = works
        self.slots = slots
        self._settle = settle
        self._on_freed = on_freed
        self._on_turn = on_turn
        # By run, not by task id: a task that was lost and leased again may run twice here for a moment.
        self._carriers: dict[Run, asyncio.Task[None] | None] = {}
        self._waiting: deque[Run] = deque()
        self._spare: asyncio.Task[None] | None = None
        self._carrier: asyncio.Task[None] | None = None
        self._context = copy_context()
        self._all_ended = asyncio.Event()
        self._carried = 0
        self._deadlines: asyncio.TimerHandle | None = None
        self._event_loop = asyncio.get_running_loop()
        self._now = self._event_loop.time()

    def __len__(self) -> int:
        return len(self._carriers)

    @property
    def free(self) -> int:
        """Slots that no run uses."""
        return self.slots - len(self._carriers)

    @property
    def is_saturated(self) -> bool:
        """Whether nearly all slots are in use."""
        return self.free < self.slots * SPARE_SHARE

    def running_by_queue(self) -> Counter[str]:
        """Count the running handlers of each queue. Counted only on request, because few workers ask."""
        return Counter([run.lease.queue for run in self._carriers])

    def start(
        self, leases: Sequence[Lease], incarnation: int, at: float = 0.0, waited_us: Sequence[float] = ()
    ) -> None:
        """Run them; `at`: the store's clock when they were leased, `waited_us`: how long each had been due by then."""
        now = self._event_loop.time()
        self._tracer = tracer()
        self._logs_starts, self._logs_ends = self._run_log.wanted()
        entries: Iterable[Entry | None] = repeat(None) if self._tally is None else self._tally.leased(leases, waited_us)
        names = list(map(_name, leases))
        works = {name: self._works.get(name) for name in set(names)}
        # By `map`: a loop in Python would cost a step of the interpreter for each run.
        of_names = map(works.__getitem__, names)
        runs = list(map(Run, leases, repeat(incarnation), of_names, entries, repeat(self), repeat(at), repeat(now)))
        if any(work is not None and work.timeout_s is not None for work in works.values()):
            for run in runs:
                if run.work is not None and run.work.timeout_s is not None:
                    run.deadline = now + run.work.timeout_s
        self._carriers.update(dict.fromkeys(runs))
        self._waiting.extend(runs)
        self._schedule_spare()

    def stop(self, reason: StopReason, task_ids: Sequence[int] | None = None) -> None:
        """Cancel these handlers, or all of them; the first reason that was given counts."""
        for run, carrier in list(self._carriers.items()):
            if run.stop_reason is None and (task_ids is None or run.lease.id in task_ids):
                if reason is StopReason.CANCELED and run.lease.cancel_requested:
                    continue  # already being canceled
                run.stop_reason = reason
                if carrier is None:
                    self._end(run, stopped(run))
                else:
                    carrier.cancel()

    def stop_waiting(self, reason: StopReason) -> None:
        """Stop the runs that have not begun; the others go on."""
        for run in self._waiting:
            if run in self._carriers:
                run.stop_reason = reason
                self._end(run, stopped(run))

    @property
    def stopping(self) -> int:
        """Handlers that were canceled and have not ended yet."""
        return sum(run.stop_reason is not None for run in self._carriers)

    def running(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of all running tasks, and the fences of those that were canceled and run past their deadline.

        Called from the heartbeat's thread: one copy first.
        """
        runs = list(self._carriers)
        overdue_at = self._event_loop.time() - DEADLINE_GRACE_S
        overdue = [run.lease for run in runs if run.deadline is not None and run.deadline < overdue_at]
        return [run.lease.id for run in runs], [(lease.id, lease.sequence) for lease in overdue]

    def hand_back(self, leases: Sequence[Lease], incarnation: int) -> None:
        """Hand back tasks that were leased and will not be run here."""
        for lease in leases:
            self._settle(incarnation, stopped(Run(lease, incarnation, None, stop_reason=StopReason.SHUTDOWN)))

    async def ended(self, timeout_s: float) -> bool:
        """Wait for all handlers; False if some still run after that time."""
        if self._carriers and timeout_s > 0:
            self._all_ended.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._all_ended.wait()
        return not self._carriers

    def abandon(self) -> list[int]:
        """Hand back the tasks whose handlers were canceled and still run; their results will be lost."""
        left = list(self._carriers)
        for run in left:
            self._settle(run.incarnation, stopped(run))
        self._carriers.clear()
        self._waiting.clear()
        return [run.lease.id for run in left]

    def log_withheld_ends(self) -> None:
        """Log the summary of ends that were too many to log one by one."""
        self._run_log.flush()

    def check_deadlines_by(self, deadline: float) -> None:
        """Check the deadlines at this time, or earlier."""
        if self._deadlines is None or deadline < self._deadlines.when():
            if self._deadlines is not None:
                self._deadlines.cancel()
            self._deadlines = self._event_loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Abandon the handlers that go on although their deadline has passed; plan the next check.

        The grace counts from when this check sees the deadline pass, not from the deadline: if the event loop was
        blocked meanwhile, the handler has not heard of its cancellation yet.
        """
        self._deadlines = None
        now = self._event_loop.time()
        for run, carrier in list(self._carriers.items()):
            if run.deadline is None or carrier is None or (run.overdue is None and run.stop_reason is None):
                continue  # it waits to begin, or the rescue takes it back
            if run.deadline <= now and run.overdue_at is None:
                run.overdue_at = now
            until = run.deadline if run.overdue_at is None else run.overdue_at + OVERDUE_S
            if until <= now:
                self._abandon(run, carrier)
            else:
                self.check_deadlines_by(until)

    def _abandon(self, run: Run, carrier: "asyncio.Task[None]") -> None:
        """Settle the task and free the slot, although the handler goes on."""
        lease, deadline = run.lease, run.deadline or 0.0
        late_s = self._event_loop.time() - deadline
        logger.error(
            "%s: its handler goes on %s after its deadline although it was canceled: its slot is free again, and what "
            "it returns is ignored",
            lease.label,
            human(round(late_s)),
            extra=about(**run.log_fields()),
        )
        run.is_abandoned = True
        settlement: Settlement | None = None
        if run.stop_reason is None:
            run.stop_reason = StopReason.OVERDUE
            assert run.overdue is not None, "without it, a run is left to the rescue"
            try:
                settlement = run.overdue()
            except Exception:
                what = "%s: cannot tell what its deadline means; it is handed back"
                logger.exception(what, lease.label, extra=about(**run.log_fields()))
        self._end(run, stopped(run) if settlement is None else settlement)
        carrier.cancel()

    def _schedule_spare(self) -> None:
        """Schedule a carrier that takes over once the current one suspends or ends."""
        if self._spare is None or self._spare.cancelling() or self._spare.done():
            # Not by create_task: with an eager task factory, it would run here and now.
            self._spare = asyncio.Task(self._carry(), loop=self._event_loop, context=self._context.copy())

    def _take_over(self) -> "asyncio.Task[None]":
        """Make the spare the carrier, in its first step: the carrier before it has suspended or ended."""
        carrier, self._spare = self._spare, None
        assert carrier is not None, "it is the spare until its first step"
        self._carrier = carrier
        self._now = self._event_loop.time()
        return carrier

    async def _carry(self) -> None:  # noqa: C901, PLR0912 - steps of each run: as calls they would cost a tenth of it
        carrier = self._take_over()
        until = self._now + CARRY_S
        waiting, carriers, failure = self._waiting, self._carriers, None
        try:
            while waiting:
                run = waiting.popleft()
                if run not in carriers:
                    continue  # stopped while it waited
                if (spare := self._spare) is None or spare.cancelling():
                    self._schedule_spare()
                carriers[run] = carrier
                run.started = self._now
                SUBJECT.set(run)
                # Copied for each run. A context that the run has not changed compares equal at once, by its address.
                context = copy_context()
                if self._logs_starts:
                    self._run_log.started(run)
                try:
                    settlement = await self._begin(run)
                except BaseException as error:  # noqa: BLE001 - it is raised again where it is not the run's own
                    settlement, failure = self._broken_off(run, error)
                if run in carriers:
                    self._end(run, settlement)
                if failure is not None:
                    raise failure
                self._carried += 1
                if self._carried % TURN_RUNS == 0 and self._on_turn is not None:
                    self._on_turn()
                # The next run must not see what this one has changed in its carrier: context variables, a cancellation.
                if self._carrier is not carrier or self._now > until or carrier.cancelling():
                    break
                try:
                    if copy_context() != context:
                        break
                except Exception:  # noqa: BLE001 - a value that cannot be compared counts as changed
                    break
        finally:
            if waiting:
                self._schedule_spare()

    def _begin(self, run: Run) -> Awaitable[Settlement]:
        """Call the handler of the run; settle the run at once if it is stopped or not registered."""
        lease, work = run.lease, run.work
        if (
            lease.cancel_requested
            and not self._is_unregistered_with_memory(run)
            and (work is None or not work.handles_cancel)
        ):
            run.stop_reason = StopReason.CANCELED
        if run.stop_reason is not None:
            return _at_once(stopped(run))
        if work is None:
            if self._works.on_unregistered is None or self._is_unregistered_with_memory(run):
                return _at_once(unknown(run, self._works))
            return self._works.on_unregistered(run)
        if work.timeout_s is not None:
            # It may have waited for the event loop: its time counts from here.
            run.ends_by(self._event_loop.time() + work.timeout_s)
        return work.run(run) if self._tracer is None else traced(self._tracer, run)

    def _is_unregistered_with_memory(self, run: Run) -> bool:
        """Return whether it has stored memory, and its name is not registered in this worker."""
        return run.work is None and run.lease.memory is not None and self._works.on_unregistered_with_memory is not None

    def _broken_off(self, run: Run, error: BaseException) -> tuple[Settlement, BaseException | None]:
        """Settle a run that raised; also return the error to raise again, where it is not the run's own."""
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            is_ours = isinstance(error, asyncio.CancelledError) and run.stop_reason is not None
            return stopped(run), None if is_ours else error
        return broken(run, error), None

    def completed(self, run: Run, ended: Ended) -> None:
        """End a run without settling it: its end is in the store already."""
        if run in self._carriers:
            self._end(run, ended, self._on_completed)

    def _end(self, run: Run, settlement: Settlement, settle: "Settle | None" = None) -> None:
        settle = settle or self._settle
        del self._carriers[run]
        # Read once a run: when one ends without a pause, the next one begins.
        self._now = now = self._event_loop.time()
        if self._logs_ends or settlement.note is not None:
            self._run_log.ended(run, settlement, now - run.started if run.started >= 0 else None)
        if not self._carriers:
            self._all_ended.set()
            if self._deadlines is not None:
                self._deadlines.cancel()
                self._deadlines = None
        if run.started < 0:
            settle(run.incarnation, settlement)
        else:
            settle(run.incarnation, settlement, run.entry, now - run.started)
        self._on_freed(run.lease.queue)


async def _at_once(settlement: Settlement) -> Settlement:
    return settlement
