"""All watches of one app, and what they share: the store, the enqueuer, waiters and threads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from everpoll.engine.coalescer import Coalescer
from everpoll.engine.enqueuer import Enqueuer
from everpoll.engine.threads import DaemonThreads
from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.errors import BadInput, TaskNotFound, WatchNotFound
from everpoll.stores.contract import Settlement, Store, TaskInfo, TaskState
from everpoll.watches.options import WatchOptions
from everpoll.watches.rounds import Rounds
from everpoll.watches.runtime import Runtime
from everpoll.watches.unregistered import settle_unregistered
from everpoll.watches.waiting import RunWaiters
from everpoll.watches.watch import Watch
from everpoll.watches.watch_run import WatchRun

THREADS = 1_000


class Watches:
    """Registered watches, by name."""

    def __init__(self, works: WorkRegistry, store: Callable[[], Awaitable[Store]]) -> None:
        self._works = works
        self.store = store
        self._watches: dict[str, Watch[Any]] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._enqueuer: Enqueuer | None = None
        self._waiters: RunWaiters | None = None
        self._infos: Coalescer[int, TaskInfo | None] = Coalescer(self._read_infos)
        self._cancels: Coalescer[tuple[int, str], TaskState | None] = Coalescer(self._send_cancels)
        self.rounds = Rounds(self)
        self.threads = DaemonThreads(limit=THREADS, name="everpoll-watch")

    def add(self, look: Callable[..., Any], every: Any, budget: Any, options: WatchOptions) -> Watch[Any]:
        """Register a look."""
        if not callable(look):
            raise BadInput(f"{look!r} is not a function: a watch is made from its look function")
        watch: Watch[Any] = Watch(self, look, every, budget, options)
        if self._works.get(watch.name) is not None:
            raise BadInput(f"{watch.name!r} is registered already; give one of the two another name=")
        self._watches[watch.name] = watch
        runtime = self._runtimes[watch.name] = Runtime(self, watch)
        self._works.add(Work(watch.name, watch.policy.queue, runtime.run, watch.policy.timeout_s, True, "watch"))
        return watch

    def settle_unregistered(self, run: Run) -> Settlement:
        """Settle a run whose watch is not registered in this worker; another worker may have registered it."""
        return settle_unregistered(run, sorted(self._watches), run.now(asyncio.get_running_loop().time()))

    def __getitem__(self, name: str) -> Watch[Any]:
        try:
            return self._watches[name]
        except KeyError:
            known = ", ".join(sorted(self._watches)[:20]) or "none"
            raise WatchNotFound(f"no watch is called {name!r}; registered: {known}") from None

    def runtime(self, name: str) -> Runtime:
        """Return what runs the steps of a watch in this process."""
        return self._runtimes[self[name].name]

    def __iter__(self) -> Iterator[Watch[Any]]:
        return iter(self._watches.values())

    def __len__(self) -> int:
        return len(self._watches)

    async def run(self, watch: str, run_id: str) -> WatchRun:
        """Find a run that was begun earlier or in another process."""
        store = await self.store()
        task = await store.find("watch", f"{watch}:{run_id}")
        if task is None:
            raise TaskNotFound(f"no run {watch}:{run_id}: it was never begun in this store, or its history was dropped")
        return WatchRun(self, watch, run_id, task.id, is_new=False)

    async def enqueuer(self) -> Enqueuer:
        """Return the enqueuer of this app."""
        store = await self.store()
        if self._enqueuer is None:
            self._enqueuer = Enqueuer(store)
        return self._enqueuer

    async def waiters(self) -> RunWaiters:
        """Return the waiters of this app."""
        store = await self.store()
        if self._waiters is None:
            self._waiters = RunWaiters(store)
        return self._waiters

    async def task(self, task_id: int) -> TaskInfo | None:
        """Read the task of a run; concurrent calls share one statement."""
        return await self._infos.one(task_id)

    async def cancel(self, task_id: int, note: str) -> TaskState | None:
        """Request the cancel of a run; concurrent calls share one statement and one notification."""
        return await self._cancels.one((task_id, note))

    async def _read_infos(self, task_ids: Sequence[int]) -> list[TaskInfo | None]:
        found = await (await self.store()).info(list(set(task_ids)))
        return [found.get(task_id) for task_id in task_ids]

    async def _send_cancels(self, requests: Sequence[tuple[int, str]]) -> list[TaskState | None]:
        return await (await self.store()).cancel_many(requests)

    def settled(self, task_ids: list[int]) -> None:
        """Wake the waiters of tasks that this process's worker has settled."""
        if self._waiters is not None:
            self._waiters.settled(task_ids)

    async def close(self) -> None:
        """Stop rounds, threads and waiters; a later call opens them again."""
        waiters = self._waiters
        await self.rounds.stop()
        self.forget()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.threads = DaemonThreads(limit=THREADS, name="everpoll-watch")
        if waiters is not None:
            await waiters.close()

    def forget(self) -> None:
        """Drop everything that belongs to an earlier event loop."""
        self._waiters = self._enqueuer = None
        self._infos, self._cancels = Coalescer(self._read_infos), Coalescer(self._send_cancels)
        self.rounds = Rounds(self)
