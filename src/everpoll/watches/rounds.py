"""Periodic rounds of a worker for its watches: begin runs for business rows that have none, and retry cleanups.

Promises: all workers may do both at the same time: an id has one run, and a cleanup is retried once. A round that fails
is logged and tried again; it never ends the worker. A business row for which no run can be begun does not delay others.
"""

import asyncio
import inspect
import logging
import random
import sys
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from everpoll.engine.enqueuer import Enqueuer
from everpoll.errors import BadInput, StoreUnavailable
from everpoll.policy import shown, spread
from everpoll.stores.contract import NewTask, TaskFilter, TaskInfo, TaskState, encode
from everpoll.watches.memory import encode as encode_memory
from everpoll.watches.run_info import memory_of, run_info

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches
    from everpoll.watches.watch import Watch

logger = logging.getLogger("everpoll.watches")

SWEEP_EVERY_S = 3600.0
SWEEP_LIMIT = 10_000
"""How many runs of each outcome a sweep reads, newest first."""
PAGE = 100
ENSURED_TOGETHER = 500
ROUND_S = 600.0
"""How long one round may take, the user's function that lists the rows included; then it is given up."""


async def ensure(watch: "Watch[Any]", rows: Callable[[], Any]) -> int:
    """Begin a run for each row that has none; return how many."""
    begun = 0
    found = await _rows(watch, rows)
    try:
        async for some in _in_pages(found):
            begun += await _ensured(watch, some)
    finally:
        _log_begun(watch, begun)
    return begun


def _log_begun(watch: "Watch[Any]", begun: int) -> None:
    if begun:
        watch.counters["repairs"] += begun
        rows_had = "1 business row" if begun == 1 else f"{begun} business rows"
        logger.warning("watch %s: %s had no run, which was begun now", watch.name, rows_had)


async def _in_pages(found: Any) -> AsyncIterator[list[Any]]:
    page: list[Any] = []
    if hasattr(found, "__aiter__"):
        async for row in found:
            page.append(row)
            if len(page) == ENSURED_TOGETHER:
                yield page
                page = []
    else:
        rows = iter(found)
        while page := list(islice(rows, ENSURED_TOGETHER)):
            yield page
    if page:
        yield page


async def _rows(watch: "Watch[Any]", rows: Callable[[], Any]) -> Any:
    """Call the user's function; a plain one, and the generator it may return, runs in a thread."""
    if inspect.iscoroutinefunction(rows) or inspect.isasyncgenfunction(rows):
        found = rows()
    else:
        found = await asyncio.get_running_loop().run_in_executor(watch.threads, lambda: _listed(rows()))
    return await found if inspect.isawaitable(found) else found


def _listed(found: Any) -> Any:
    return found if inspect.isawaitable(found) or hasattr(found, "__aiter__") else list(found)


async def _ensured(watch: "Watch[Any]", rows: list[Any]) -> int:
    """Begin the runs of these rows in one statement; if the store refuses it, in one statement each."""
    tasks = [task for row in rows if (task := _task_of(watch, row)) is not None]
    enqueuer = await watch.enqueuer()
    try:
        return sum(one.is_new for one in await enqueuer.many(tasks))
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - logged for the row that caused it
        if len(tasks) > 1:
            return sum([await _ensured_alone(watch, enqueuer, task) for task in tasks])
        logger.error("watch %s: no run can be begun as %s: %s", watch.name, shown(tasks[0].key), error)
        return 0


async def _ensured_alone(watch: "Watch[Any]", enqueuer: Enqueuer, task: NewTask) -> int:
    try:
        return int((await enqueuer.one(task)).is_new)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - the other rows go on
        logger.error("watch %s: no run can be begun as %s: %s", watch.name, shown(task.key), error)
        return 0


def _task_of(watch: "Watch[Any]", row: Any) -> NewTask | None:
    try:
        if isinstance(row, str | bytes | dict) or len(row) not in {2, 3}:
            raise BadInput("write (op, id) or (op, id, handle)")
        op, run_id, *rest = row
        if isinstance(run_id, bool) or not isinstance(run_id, str | int):
            raise BadInput(f"{shown(run_id)} is not a valid id of a run: write a text or a number")
        return watch.new_task(op, str(run_id), rest[0] if rest else None)
    except Exception as error:  # noqa: BLE001 - the user's own row
        logger.error("watch %s: no run can be begun for the row %s: %s", watch.name, shown(row), error)
        return None


async def sweep(watches: "Watches", name: str, limit: int = SWEEP_LIMIT) -> int:
    """Retry cleanups that were given up, and clean up after runs that a rescue ended. Return how many."""
    store = await watches.store()
    swept = 0
    states: tuple[TaskState, ...] = ("done", "failed", "canceled")
    for state in states:
        after, seen = None, 0
        while seen < limit:
            page = await store.tasks(TaskFilter(kind="watch", name=name, state=state, indexed=True), PAGE, after)
            for task in page.tasks:
                if run_info(task).cleaned is False:
                    note = encode({"what": "retry", "why": "its cleanup is tried again"})
                    swept += await store.retry(task.id, note)
                elif memory_of(task).outcome is None:
                    [cleanup] = await store.enqueue([_cleanup_of(task, watches[name].policy.step_s)])
                    swept += cleanup.is_new
            seen += len(page.tasks)
            after = page.after
            if after is None:
                break
    return swept


def _cleanup_of(task: TaskInfo, timeout_s: float) -> NewTask:
    """Return a task that cleans up after a run that a rescue ended, because three workers died while they ran it.

    The task begins with the outcome, so it only cleans up, with the run's idempotency key. No run has the task's own
    key, which begins with a colon.
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
        timeout_s=timeout_s,
        memory=encode_memory(memory),
        cancels_itself=True,
        indexed=True,
        once=True,
    )


class Rounds:
    """The rounds of one app while its worker runs."""

    def __init__(self, watches: "Watches") -> None:
        self._watches = watches
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._rounds: dict[object, asyncio.Task[None]] = {}
        self._rng = random.Random()  # noqa: S311 - spreads a fleet, no secret

    def start(self) -> None:
        """Start the rounds; a second call starts those of newly registered watches."""
        self._event_loop = asyncio.get_running_loop()
        self._extend()

    def extend(self) -> None:
        """Start the rounds of newly registered watches; callable from any thread."""
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
            if watch.cleanup_function is not None and watch.name not in self._rounds:
                self._rounds[watch.name] = create(self._sweep(watch), name=f"everpoll-sweep-{watch.name}")

    async def stop(self) -> None:
        """Stop all rounds."""
        self._event_loop = None
        rounds, self._rounds = list(self._rounds.values()), {}
        for one in rounds:
            one.cancel()
        await asyncio.gather(*rounds, return_exceptions=True)

    async def _ensure(self, watch: "Watch[Any]", every_s: float, rows: Any) -> None:
        while True:
            try:
                async with asyncio.timeout(ROUND_S):
                    await ensure(watch, rows)
            except BaseException:
                _raise_if_stopped()
                logger.exception("watch %s: the round for rows without a run failed; it is tried again", watch.name)
            await asyncio.sleep(spread(every_s, 0.1, self._rng.random()))

    async def _sweep(self, watch: "Watch[Any]") -> None:
        while True:
            await asyncio.sleep(spread(SWEEP_EVERY_S, 0.5, self._rng.random()))
            try:
                swept = await sweep(self._watches, watch.name)
            except BaseException:
                _raise_if_stopped()
                logger.exception("watch %s: sweeping failed; it is tried again", watch.name)
            else:
                if swept:
                    logger.warning("watch %s: the cleanup of %d runs is tried again", watch.name, swept)


def _raise_if_stopped() -> None:
    """Inside an except block: raise the error again if the round is being stopped or the user pressed Ctrl-C."""
    task, error = asyncio.current_task(), sys.exception()
    if isinstance(error, KeyboardInterrupt) or (task is not None and task.cancelling()):
        raise  # noqa: PLE0704 - what is being handled
