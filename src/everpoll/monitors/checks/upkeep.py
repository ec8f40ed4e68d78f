"""Upkeep: rolls up and prunes the records of services, and revives tasks that must not end; one task for the fleet.

Alerts for a channel that no process has are given up after a day.

Promises: at most one worker does it at a time, about once a minute. If that worker dies, another one repeats the run,
because every step may be repeated. Each run is bounded; if work is left, the next run comes at once. If the engine gave
up a service, an incident or a mailbox because three workers died with it, it is revived within a minute.
"""

import asyncio
import logging

from everpoll.engine.work import Run, Work
from everpoll.monitors.alerts.undelivered import give_up_unserved
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.checks.run_or_retry import run_or_retry
from everpoll.stores.contract import Again, NewTask, Settlement, Store, TaskFilter, encode

logger = logging.getLogger("everpoll.monitors")

KIND, UPKEEP = "upkeep", "everpoll.upkeep"
EVERLASTING = ("check", "incident", "mailbox")
EVERY_S = 60.0
SETTLED_S = 30.0
"""Looks of the last half minute are not rolled up yet: more may come for the same minute."""
ROUNDS = 20
"""How many portions one run rolls up or prunes."""


class Upkeep:
    """The work of the one upkeep task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.work = Work(UPKEEP, QUEUE, self.run, kind="upkeep")

    async def ensure(self) -> None:
        """Create the task, unless it exists."""
        await self._store.enqueue([NewTask(name=UPKEEP, kind=KIND, queue=QUEUE, key="health", delay_s=EVERY_S)])

    async def run(self, run: Run) -> Settlement:
        """Revive, roll up and prune, a bounded portion of each."""
        return await run_or_retry(run, self._run, "upkeep")

    async def _run(self, run: Run) -> Settlement:
        lease = run.lease
        now = run.now(asyncio.get_running_loop().time())
        await self._revive()
        await give_up_unserved(self._store, now)
        is_more = await self._roll_up(now) or await self._prune(now)
        # Writing a memory marks this run as successful, so that earlier worker deaths do not count any more.
        memory = encode({"at": now})
        return Again(lease.id, lease.sequence, 0.0 if is_more else EVERY_S, refund=True, memory=memory)

    async def _revive(self) -> None:
        """Retry tasks that must not end: the engine gives a task up when three workers have died with it."""
        for kind in EVERLASTING:
            page = await self._store.tasks(TaskFilter(kind=kind, state="failed", indexed=True), limit=100)
            for task in page.tasks:
                latest = await self._store.find(kind, task.key or "")
                if latest is None or latest.id != task.id:
                    # A newer task has the same key: the service was registered again, or was removed.
                    continue
                if await self._store.retry(task.id, encode({"what": "retry", "why": "it must not end"})):
                    logger.error(
                        "%s %r was given up after %d workers died with it; it is revived", kind, task.key, task.rescues
                    )

    async def _roll_up(self, now: float) -> bool:
        after = 0
        for _ in range(ROUNDS):
            rolled = await self._store.health.roll_up(now - SETTLED_S, after)
            if rolled is None:
                return False
            after = rolled
        return True

    async def _prune(self, now: float) -> bool:
        for _ in range(ROUNDS):
            if not await self._store.health.prune(now):
                return False
        return True
