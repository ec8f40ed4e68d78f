"""What a worker does for its watches now and then: runs for business rows that have none, and cleanups that gave up.

Promises: both may be done by every worker at the same time: beginning a run twice is no second run, and a cleanup is
put back once. A round that fails is told and tried again; it never ends the worker.
"""

import asyncio
import inspect
import logging
import random
from typing import TYPE_CHECKING, Any

from everpoll.policy import spread
from everpoll.stores.contract import TaskFilter, encode
from everpoll.watches.handle import run_info

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches
    from everpoll.watches.watch import Watch

logger = logging.getLogger("everpoll.watches")

SWEEP_EVERY_S = 3600.0
PAGE = 500


async def ensure(watch: "Watch[Any]", rows: Any) -> int:
    """Begin what has no run yet; how many those were (B13)."""
    found = rows()
    if inspect.isawaitable(found):
        found = await found
    begun = 0
    if hasattr(found, "__aiter__"):
        async for row in found:
            begun += await _ensured(watch, row)
    else:
        for row in found:
            begun += await _ensured(watch, row)
    if begun:
        watch.counters["repairs"] += begun
        logger.warning("watch %s: %d business rows had no run, and have one now", watch.name, begun)
    return begun


async def _ensured(watch: "Watch[Any]", row: Any) -> int:
    op, run_id, *rest = row
    run = await watch.begin(op, str(run_id), handle=rest[0] if rest else None)
    return int(run.is_new)


async def sweep(watches: "Watches", name: str, limit: int = 10_000) -> int:
    """Put back the ended runs whose cleanup has given up; how many those were (B14)."""
    store = await watches.store()
    swept, after, seen = 0, None, 0
    for state in ("done", "failed", "canceled"):
        after = None
        while seen < limit:
            page = await store.tasks(TaskFilter(kind="watch", name=name, state=state), PAGE, after)
            for task in page.tasks:
                seen += 1
                if run_info(task).cleaned is False:
                    note = encode({"what": "requeue", "why": "its cleanup is tried again"})
                    swept += await store.retry(task.id, note)
            after = page.after
            if after is None:
                break
    return swept


class Rounds:
    """The rounds of one app, while its worker runs."""

    def __init__(self, watches: "Watches") -> None:
        self._watches = watches
        self._rounds: list[asyncio.Task[None]] = []
        self._rng = random.Random()  # noqa: S311 - spreads a fleet, no secret

    def start(self) -> None:
        """Begin; repeatable."""
        if self._rounds:
            return
        create = asyncio.get_running_loop().create_task
        for watch in self._watches:
            for every_s, rows in watch.ensures:
                self._rounds.append(create(self._ensure(watch, every_s, rows), name=f"everpoll-ensure-{watch.name}"))
            if watch.cleans is not None:
                self._rounds.append(create(self._sweep(watch), name=f"everpoll-sweep-{watch.name}"))

    async def stop(self) -> None:
        """End."""
        rounds, self._rounds = self._rounds, []
        for one in rounds:
            one.cancel()
        await asyncio.gather(*rounds, return_exceptions=True)

    async def _ensure(self, watch: "Watch[Any]", every_s: float, rows: Any) -> None:
        while True:
            try:
                await ensure(watch, rows)
            except Exception:
                logger.exception("watch %s: the round for rows without a run failed; it is tried again", watch.name)
            await asyncio.sleep(spread(every_s, 0.1, self._rng.random()))

    async def _sweep(self, watch: "Watch[Any]") -> None:
        while True:
            await asyncio.sleep(spread(SWEEP_EVERY_S, 0.5, self._rng.random()))
            try:
                swept = await sweep(self._watches, watch.name)
            except Exception:
                logger.exception("watch %s: sweeping failed; it is tried again", watch.name)
            else:
                if swept:
                    logger.warning("watch %s: the cleanup of %d runs is tried again", watch.name, swept)
