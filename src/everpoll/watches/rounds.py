"""What a worker does for its watches now and then: runs for business rows that have none, and cleanups that are due.

Promises: both may be done by every worker at the same time: beginning a run twice is no second run, and a cleanup is
put back once. A round that fails is told and tried again; it never ends the worker. One row that cannot be begun holds
up no other.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everpoll.errors import BadInput, StoreUnavailable
from everpoll.policy import shown, spread
from everpoll.stores.contract import NewTask, TaskFilter, TaskInfo, TaskState, encode
from everpoll.watches.handle import memory_of, run_info
from everpoll.watches.memory import encode as encode_memory

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches
    from everpoll.watches.watch import Watch

logger = logging.getLogger("everpoll.watches")

SWEEP_EVERY_S = 3600.0
SWEEP_LIMIT = 10_000
"""Runs of each outcome that a sweep looks at, newest first: a cleanup that is given up is found within the hour."""
PAGE = 100


async def ensure(watch: "Watch[Any]", rows: Callable[[], Any]) -> int:
    """Begin what has no run yet; how many those were (B13)."""
    begun = 0
    found = await _rows(watch, rows)
    if hasattr(found, "__aiter__"):
        async for row in found:
            begun += await _ensured(watch, row)
    else:
        for row in found:
            begun += await _ensured(watch, row)
    if begun:
        watch.counters["repairs"] += begun
        rows_had = "1 business row" if begun == 1 else f"{begun} business rows"
        logger.warning("watch %s: %s had no run: begun", watch.name, rows_had)
    return begun


async def _rows(watch: "Watch[Any]", rows: Callable[[], Any]) -> Any:
    """What the user's function returns; a plain one is called in a thread, and so is what it yields."""
    if inspect.iscoroutinefunction(rows) or inspect.isasyncgenfunction(rows):
        found = rows()
    else:
        found = await asyncio.get_running_loop().run_in_executor(watch.threads, lambda: _listed(rows()))
    return await found if inspect.isawaitable(found) else found


def _listed(found: Any) -> Any:
    return found if inspect.isawaitable(found) or hasattr(found, "__aiter__") else list(found)


async def _ensured(watch: "Watch[Any]", row: Any) -> int:
    try:
        if isinstance(row, str | bytes | dict) or len(row) not in {2, 3}:
            raise BadInput("write (op, id) or (op, id, handle)")
        op, run_id, *rest = row
        if isinstance(run_id, bool) or not isinstance(run_id, str | int):
            raise BadInput(f"{shown(run_id)} is no id of a run: write a text or a number")
        run = await watch.begin(op, str(run_id), handle=rest[0] if rest else None)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - the user's own row
        logger.error("watch %s: no run can be begun for the row %s: %s", watch.name, shown(row), error)
        return 0
    return int(run.is_new)


async def sweep(watches: "Watches", name: str, limit: int = SWEEP_LIMIT) -> int:
    """Have cleaned up what ended runs have left: those whose cleanup has given up, and those that had none (B14)."""
    store = await watches.store()
    swept = 0
    states: tuple[TaskState, ...] = ("done", "failed", "canceled")
    for state in states:
        after, seen = None, 0
        while seen < limit:
            page = await store.tasks(TaskFilter(kind="watch", name=name, state=state), PAGE, after)
            for task in page.tasks:
                if run_info(task).cleaned is False:
                    note = encode({"what": "requeue", "why": "its cleanup is tried again"})
                    swept += await store.retry(task.id, note)
                elif memory_of(task).outcome is None:
                    [cleanup] = await store.enqueue([_cleanup_of(task)])
                    swept += cleanup.is_new
            seen += len(page.tasks)
            after = page.after
            if after is None:
                break
    return swept


def _cleanup_of(task: TaskInfo) -> NewTask:
    """A run that ended behind the back of its watch (its worker died of it, three times) is cleaned up by another one.

    That one has the outcome already, and only cleans up, with the key of the first. Its own key is one that no run has.
    """
    memory = memory_of(task)
    memory.outcome, memory.phase, memory.parked = "failed", "cleaning", None
    memory.reason = f"the cleanup of run {task.id}, which ended without one: {run_info(task).reason}"
    memory.log, memory.counters, memory.seq = [], {}, 0
    return NewTask(
        name=task.name,
        args=encode(task.args),
        kind="watch",
        queue=task.queue,
        key=f":cleanup:{task.key}",
        memory=encode_memory(memory),
        once=True,
    )


class Rounds:
    """The rounds of one app, while its worker runs."""

    def __init__(self, watches: "Watches") -> None:
        self._watches = watches
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._rounds: dict[object, asyncio.Task[None]] = {}
        self._rng = random.Random()  # noqa: S311 - spreads a fleet, no secret

    def start(self) -> None:
        """Begin; repeatable."""
        self._event_loop = asyncio.get_running_loop()
        self._extend()

    def extend(self) -> None:
        """Something was registered, in whatever thread: if rounds are made, there may be one more."""
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._extend)

    def _extend(self) -> None:
        if self._event_loop is None:
            return
        create = self._event_loop.create_task
        for watch in self._watches:
            for every_s, rows in watch.ensures:
                if (watch.name, rows) not in self._rounds:
                    ensuring = create(self._ensure(watch, every_s, rows), name=f"everpoll-ensure-{watch.name}")
                    self._rounds[watch.name, rows] = ensuring
            if watch.cleans is not None and watch.name not in self._rounds:
                self._rounds[watch.name] = create(self._sweep(watch), name=f"everpoll-sweep-{watch.name}")

    async def stop(self) -> None:
        """End."""
        self._event_loop = None
        rounds, self._rounds = list(self._rounds.values()), {}
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
