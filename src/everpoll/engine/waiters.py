"""Waiting for tasks: one shared query serves every caller of this process.

    wait ──▶ read, together with others ──▶ answered
               ▲              │ not yet
               └── waits ◀────┘     read again when this process's worker has settled the task, when the feed of events
                                    names it, and now and then in any case

Promises: a caller gets the result at once if this process's worker settles the task, and within a second if another
worker does. Callers share statements: a query reads up to QUERY_LIMIT tasks, and as many results as fit into one
answer. While no caller waits, there is no query. Callers wait through an outage of the store. A caller that waits when
the app is closed gets `NotRunning`; the store is not opened again. Never: needs a notification for each task that ends,
because those would take a global lock of the database at every commit.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from typing import Generic, TypeVar

from everpoll.drivers.repeated_warnings import RepeatedWarnings
from everpoll.engine.endless_wait import refuse_endless_wait
from everpoll.errors import NotRunning, StoreUnavailable
from everpoll.policy import Backoff
from everpoll.stores.contract import Store

logger = logging.getLogger("everpoll.engine")

Q = TypeVar("Q")
A = TypeVar("A")
QUERY_LIMIT = 1_000
"""How many tasks one statement reads."""
PAGE = 1_000
"""How many events one statement reads."""
QUICK_S = 0.05
"""The shortest time between two queries of the feed while nothing happens."""
CALLERS_A_QUERY = 100
"""With n callers, the feed is queried n / 100 times a second, but not more often than every QUICK_S."""
SWEPT_A_SECOND = 1_000
"""How many tasks a second are read again although the feed has not named them: 20,000 take 20 s, and little CPU
time."""


class Waiter(Generic[Q, A]):
    """One caller that waits for one task."""

    __slots__ = ("answer", "question", "task_id")

    def __init__(self, task_id: int, question: Q) -> None:
        self.task_id = task_id
        self.question = question
        self.answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: A) -> None:
        """Give the answer to the caller, unless it was canceled."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: Exception) -> None:
        """Raise this in the caller, unless it was canceled."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often to query."""

    rests: Backoff
    """The waits between two queries. They start from the first again after each new caller and each change."""
    sweep_s: float
    """The longest time between two reads of a task."""
    fresh_s: float = 0.0
    """Tasks that have waited for less than this are read in every query, because most tasks end soon."""
    follows_events: bool = False
    """True if the feed of events names the tasks that have changed: the others are then read rarely."""


class Waiters(Generic[Q, A]):
    """The callers of one process that wait for tasks of one front.

    `read` gets waiters, reads their tasks in one statement, answers those whose tasks have ended, and returns the
    tasks whose answers did not fit: they are read again at once.
    """

    def __init__(
        self,
        store: Store,
        read: Callable[[Sequence[Waiter[Q, A]]], Awaitable[Sequence[int]]],
        cadence: Cadence,
        closed: str,
    ) -> None:
        self._store = store
        self._read = read
        self._cadence = cadence
        self._closed_text = closed
        self._is_closed = False
        self._waiting: dict[int, dict[Waiter[Q, A], None]] = {}
        self._changed: dict[int, None] = {}
        """Tasks that have changed, in the order in which this process learned of it. They are read first."""
        self._due: dict[int, None] = {}
        """Tasks to be read after those: their caller is new, or they were not read for some time."""
        self._fresh: dict[int, float] = {}
        self._read_at: OrderedDict[int, float] = OrderedDict()
        """When each task was last read, the longest ago first."""
        self._after: str | None = None
        self._queries = 1
        self._query_at = 0.0
        self._nudged = asyncio.Event()
        self._querying: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, task_id: int, question: Q) -> A:
        """Return the answer, as soon as there is one."""
        if self._is_closed:
            raise NotRunning(self._closed_text)
        waiter = Waiter[Q, A](task_id, question)
        event_loop = asyncio.get_running_loop()
        now = event_loop.time()
        if task_id not in self._waiting:
            self._waiting[task_id] = {}
            self._read_at[task_id] = now
            self._fresh[task_id] = now
        self._waiting[task_id][waiter] = None
        self._due[task_id] = None
        soon_at = now + self._cadence.rests.delay(1)
        if self._querying is None or self._querying.done():
            self._querying, self._query_at = event_loop.create_task(self._run(), name="everpoll-waiters"), soon_at
        self._queries, self._query_at = 1, min(self._query_at, soon_at)
        self._nudged.set()
        try:
            return await waiter.answer
        finally:
            self._forget(waiter)

    def settled(self, task_ids: Iterable[int]) -> None:
        """Read these tasks next: this process has just settled them."""
        if self._waiting and self._read_next(task_ids):
            self._nudged.set()

    async def close(self) -> None:
        """Stop querying; the callers get `NotRunning`."""
        self._is_closed = True
        if self._querying is not None:
            self._querying.cancel()
            await asyncio.gather(self._querying, return_exceptions=True)
        # An error, not a cancellation: the task that waits was not canceled.
        self._refuse(self._closed_text)

    def _forget(self, waiter: Waiter[Q, A]) -> None:
        waiters = self._waiting[waiter.task_id]
        del waiters[waiter]
        if not waiters:
            # No caller waits for this task any more: it is not queried again.
            del self._waiting[waiter.task_id]
            del self._read_at[waiter.task_id]
            self._changed.pop(waiter.task_id, None)
            self._due.pop(waiter.task_id, None)
            self._fresh.pop(waiter.task_id, None)

    def _refuse(self, text: str) -> None:
        for waiters in self._waiting.values():
            for waiter in waiters:
                # An error of its own for each: one error that is raised many times would collect all their tracebacks.
                waiter.refuse(NotRunning(text))

    def _read_next(self, task_ids: Iterable[int]) -> int:
        """Read these tasks next; return how many of them a caller waits for."""
        found = [task_id for task_id in task_ids if task_id in self._waiting]
        self._changed.update(dict.fromkeys(found))
        return len(found)

    async def _run(self) -> None:
        now, self._after = asyncio.get_running_loop().time, None
        warnings = RepeatedWarnings(logger, "reading results", now)
        while self._waiting:
            self._nudged.clear()
            try:
                await self._query_once()
                warnings.works()
                await refuse_endless_wait(self._store, self._queries)
            except StoreUnavailable as error:
                warnings.failed(error, "cannot query results: %s; trying again", error)
                self._plan()
            except NotRunning as error:
                self._refuse(str(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, the next query may succeed
                warnings.failed(error, "reading results failed; trying again", level=logging.ERROR)
                self._plan()
            if self._waiting and self._query_at > now():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._query_at):
                        await self._nudged.wait()

    def _plan(self) -> None:
        self._queries += 1
        rest_s = self._cadence.rests.delay(self._queries)
        if self._cadence.follows_events:
            # A query of the feed costs the same for one caller and for 20,000: many callers share more frequent
            # queries.
            rest_s = min(rest_s, max(QUICK_S, CALLERS_A_QUERY / max(1, len(self._waiting))))
        self._query_at = asyncio.get_running_loop().time() + rest_s

    async def _query_once(self) -> None:
        """Read all tasks that are due to be read, slice by slice; tasks that change meanwhile come first."""
        now = asyncio.get_running_loop().time
        if self._cadence.follows_events and self._after is None:
            # Read the position before the tasks: events that come after the tasks were read are behind it.
            self._after = (await self._store.events(None, PAGE)).after
        while True:
            await self._read_slice()
            if now() >= self._query_at:
                is_full = await self._follow()
                self._sweep()
                self._plan()
                if is_full:
                    self._query_at = now()
            if not self._changed and not self._due:
                return

    async def _follow(self) -> bool:
        """Read the feed; return True if there is more of it."""
        if not self._cadence.follows_events:
            return False
        page = await self._store.events(self._after, PAGE)
        self._after = page.after
        if self._read_next(one.task_id for one in page.events):
            self._queries = 0
        return len(page.events) == PAGE

    def _sweep(self) -> None:
        """Choose the tasks to read: those that began to wait a moment ago, and those that were not read for long."""
        cadence, now = self._cadence, asyncio.get_running_loop().time()
        for task_id in [task_id for task_id, since in self._fresh.items() if since + cadence.fresh_s < now]:
            del self._fresh[task_id]
        self._due.update(dict.fromkeys(self._fresh))
        rest_s = cadence.sweep_s
        if cadence.follows_events:
            rest_s = max(rest_s, len(self._waiting) / SWEPT_A_SECOND)
        stale = takewhile(lambda task_id: self._read_at[task_id] <= now - rest_s, self._read_at)
        self._due.update(dict.fromkeys(stale))

    async def _read_slice(self) -> None:
        task_ids = list(islice(chain(self._changed, self._due), QUERY_LIMIT))
        for task_id in task_ids:
            self._changed.pop(task_id, None)
            self._due.pop(task_id, None)
        waiters = [
            waiter for task_id in task_ids for waiter in self._waiting.get(task_id, ()) if not waiter.answer.done()
        ]
        if not waiters:
            return
        try:
            self._read_next(await self._read(waiters))
        except (StoreUnavailable, NotRunning):
            self._read_next(task_ids)
            raise
        except Exception as error:
            logger.exception("reading results failed; the callers get the error")
            for waiter in waiters:
                waiter.refuse(error)
        read_at = asyncio.get_running_loop().time()
        for task_id in task_ids:
            if task_id in self._read_at:
                self._read_at[task_id] = read_at
                self._read_at.move_to_end(task_id)
