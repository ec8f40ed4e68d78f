"""One run of a schedule: enqueue the job of each scheduled time that has come, and then settle the schedule.

Promises: the jobs are enqueued in the transaction of the settlement, or not at all. A schedule that no live worker
registers enqueues nothing, asks again every `UNREGISTERED_S`, and is removed after `FORGOTTEN_S`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec import UNSET

from everpoll.engine.work import Run
from everpoll.jobs.schedule_rows import Memory, read_memory, read_plan, task_of_time
from everpoll.jobs.timetable import due
from everpoll.policy import human
from everpoll.stores.contract import Again, Ended, Settlement, encode

logger = logging.getLogger("everpoll.jobs")

FORGOTTEN_S = 3600.0
UNREGISTERED_S = 30.0


async def run_schedule(run: Run, is_registered: Callable[[str], Awaitable[bool]]) -> Settlement:
    """Enqueue the due jobs and settle the schedule; `is_registered` tells whether a live worker registers a name."""
    lease = run.lease
    now = run.now(asyncio.get_running_loop().time())
    memory = read_memory(lease.memory or "{}")
    if not await is_registered(lease.key or ""):
        return _unregistered(run, memory, now)
    memory.unregistered_since = None
    plan = read_plan(lease.args)
    if memory.last is UNSET:
        memory.last = now
    decided = due(plan.timetable, plan.missed, memory.last, now)
    memory.last = decided.last
    if decided.times:
        memory.ran = decided.times[-1]
        logger.debug("schedule %r: enqueueing %s for %d times", lease.key, plan.job, len(decided.times))
    return Again(
        lease.id,
        lease.sequence,
        max(0.0, decided.next_at - now),
        refund=True,
        memory=encode(memory),
        follow_ups=tuple(task_of_time(plan, time) for time in decided.times),
    )


def _unregistered(run: Run, memory: Memory, now: float) -> Settlement:
    lease = run.lease
    since = memory.unregistered_since = now if memory.unregistered_since is None else memory.unregistered_since
    if now - since >= FORGOTTEN_S:
        why = f"no live worker has registered it for {human(FORGOTTEN_S)}"
        logger.warning("schedule %r is removed: %s", lease.key, why)
        return Ended(lease.id, lease.sequence, "canceled", None, encode({"what": "canceled", "why": why}))
    return Again(lease.id, lease.sequence, UNREGISTERED_S, refund=True, memory=encode(memory))
