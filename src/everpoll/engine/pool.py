"""The running handlers of one worker: bounded slots, and what becomes of a handler that is stopped.

Promises: never more handlers than slots (A15); each run yields exactly one settlement, whatever its handler does.
A handler is canceled for a reason, and the reason decides: canceled ends the task, the others hand it back.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from everpoll.engine.work import Run, StopReason, Works
from everpoll.stores.contract import Again, Ended, Lease, Settlement, encode

logger = logging.getLogger("everpoll.engine")

GIVE_BACK = {
    StopReason.SHUTDOWN: "its worker shuts down",
    StopReason.FENCED: "its worker could not reach the database",
    StopReason.LOST: "its worker was given up for dead",
}


class Pool:
    """Runs leases and hands each settlement on."""

    def __init__(self, works: Works, slots: int, settle: Callable[[int, Settlement], None]) -> None:
        self._works = works
        self.slots = slots
        self._settle = settle
        # By run, not by task id: a task that was lost and leased again may run twice here for a moment.
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._by_queue: Counter[str] = Counter()
        self.on_freed: Callable[[str], None] = lambda _queue: None
        self._event_loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def free(self) -> int:
        """Slots that nobody uses."""
        return self.slots - len(self._tasks)

    def running_in(self, queue: str) -> int:
        """Handlers of one queue."""
        return self._by_queue[queue]

    def start(self, leases: Sequence[Lease], incarnation: int) -> None:
        """Run them."""
        now = self._event_loop.time()
        event_loop = self._event_loop
        for lease in leases:
            work = self._works.get(lease.name)
            deadline = None if work is None or work.timeout_s is None else now + work.timeout_s
            run = Run(lease, incarnation, None, deadline)
            self._by_queue[lease.queue] += 1
            # Not by create_task: an eager factory would run the task here, before it is in the pool.
            self._tasks[run] = asyncio.Task(self._run(run), loop=event_loop, name=lease.name)

    def stop(self, reason: StopReason, task_ids: Sequence[int] | None = None) -> None:
        """Cancel these handlers, or all of them; the first reason given stands."""
        for run, task in list(self._tasks.items()):
            if run.stop_reason is None and (task_ids is None or run.lease.id in task_ids):
                run.stop_reason = reason
                # Canceled before its first step, a coroutine never runs: its slot would never become free.
                if run.is_begun:
                    task.cancel()

    def running(self) -> tuple[list[int], float | None]:
        """The ids, and the seconds until the nearest deadline. Called from the heartbeat's thread: one copy first."""
        runs = list(self._tasks)
        deadlines = [run.deadline for run in runs if run.deadline is not None]
        return [run.lease.id for run in runs], min(deadlines) - self._event_loop.time() if deadlines else None

    def give_back(self, leases: Sequence[Lease], incarnation: int) -> None:
        """Hand back what was leased but is not to be run any more."""
        for lease in leases:
            self._settle(incarnation, _stopped(Run(lease, incarnation, StopReason.SHUTDOWN)))

    async def ended(self, timeout_s: float) -> bool:
        """Wait for all handlers; False if some still run after that time."""
        if self._tasks and timeout_s > 0:
            await asyncio.wait(list(self._tasks.values()), timeout=timeout_s)
        return not self._tasks

    def abandon(self) -> list[int]:
        """Give back what still runs although it was canceled; its results will be lost."""
        left = list(self._tasks)
        for run in left:
            self._settle(run.incarnation, _stopped(run))
        self._tasks.clear()
        return [run.lease.id for run in left]

    async def _run(self, run: Run) -> None:
        lease = run.lease
        settlement: Settlement | None = None
        run.is_begun = True
        try:
            work = self._works.get(lease.name)
            if lease.cancel_requested:
                run.stop_reason = StopReason.CANCELED
            if run.stop_reason is not None:
                settlement = _stopped(run)
            elif work is None:
                settlement = _unknown(lease, self._works.names)
            else:
                settlement = await work.run(run)
        except asyncio.CancelledError:
            settlement = _stopped(run)
            if run.stop_reason is None:
                raise
        except Exception as error:
            logger.exception("running task %d (%s) failed inside everpoll", lease.id, lease.name)
            note = encode({"what": "failed", "error": f"{type(error).__name__}: {error}", "attempt": lease.attempt})
            settlement = Ended(lease.id, lease.sequence, "failed", None, note)
        finally:
            if self._tasks.pop(run, None) is not None:
                self._by_queue[lease.queue] -= 1
                self._settle(run.incarnation, _stopped(run) if settlement is None else settlement)
                self.on_freed(lease.queue)


def _stopped(run: Run) -> Settlement:
    """What becomes of a task whose handler was canceled."""
    lease = run.lease
    if run.stop_reason is StopReason.CANCELED:
        note = encode({"what": "canceled", "attempt": lease.attempt, "why": "canceled while running"})
        return Ended(lease.id, lease.sequence, "canceled", None, note)
    why = GIVE_BACK.get(run.stop_reason) if run.stop_reason else None
    note = encode({"what": "give-back", "why": why or "its handler was canceled from outside"})
    return Again(lease.id, lease.sequence, None, refund=True, note=note)


def _unknown(lease: Lease, names: list[str]) -> Settlement:
    known = ", ".join(names[:20]) or "nothing"
    error = f"no job called {lease.name!r} is registered in this worker; registered: {known}"
    note = encode({"what": "failed", "error": error, "attempt": lease.attempt, "kind": "UnknownJob"})
    return Ended(lease.id, lease.sequence, "failed", None, note)
