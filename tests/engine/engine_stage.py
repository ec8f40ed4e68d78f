"""The stage on which workers play in virtual time: a store that records and fails as told, and a virtual heart.

The real heartbeat has a thread and real time (tests/engine/test_heartbeat.py); here its place is taken by one that
does the same in virtual time, so that hours of beating, hanging and dying take no time.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from everpoll.drivers.wake import OnWake, Wake
from everpoll.engine.loop_heartbeat import LoopHeartbeat
from everpoll.engine.options import WorkerOptions
from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import (
    Beat,
    Ended,
    Enqueued,
    HeartbeatConnection,
    Lease,
    Leased,
    NewTask,
    Rescued,
    Settlement,
    TaskInfo,
    WorkerCard,
)
from everpoll.stores.figures import Figure
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock

GONE = StoreUnavailable("connection refused")


class Look(NamedTuple):
    """One call of `lease`."""

    at: float
    rooms: dict[str, int]
    most: int
    found: int


class SpyStore(MemoryStore):
    """Records what is asked of it and when; each operation fails with the errors lined up for it, then works."""

    def __init__(self, clock: VirtualClock, *, has_push: bool = True) -> None:
        super().__init__(clock)
        self.beats_in_loop = False  # the stage has a heartbeat of its own, which can be frozen
        self.clock = clock
        self.has_push = has_push
        self.looks: list[Look] = []
        self.settles: list[list[Settlement]] = []
        self.beats: list[float] = []
        self.calls: list[str] = []
        self.errors: defaultdict[str, list[Exception | None]] = defaultdict(list)
        self.takes_s: defaultdict[str, float] = defaultdict(float)
        self.is_down = False
        self.is_mute = False
        self._listeners_by_wake: dict[OnWake, OnWake] = {}

    def fail(self, operation: str, times: int = 1, error: Exception = GONE) -> None:
        """The next calls of this operation fail."""
        self.errors[operation] += [error] * times

    @property
    def looked_at(self) -> list[float]:
        return [look.at for look in self.looks]

    def trip(self, operation: str) -> None:
        self.calls.append(operation)
        error = self.errors[operation].pop(0) if self.errors[operation] else None
        if error is not None or self.is_down:
            # A new one each time: an error that is raised again keeps every traceback that it ever had.
            raise type(error)(*error.args) if error is not None else StoreUnavailable(*GONE.args)

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        self.trip("enqueue")
        return await super().enqueue(tasks)

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        await asyncio.sleep(self.takes_s["sign_on"])
        self.trip("sign_on")
        await super().sign_on(card, lease_s)

    async def sign_off(self, incarnation: int) -> None:
        self.trip("sign_off")
        await super().sign_off(incarnation)

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        at = self.clock.now()
        try:
            self.trip("lease")
            leased = await super().lease(incarnation, rooms, most)
        except Exception:
            self.looks.append(Look(at, dict(rooms), most, 0))
            raise
        self.looks.append(Look(at, dict(rooms), most, len(leased.leases)))
        if self.takes_s["lease"]:
            await asyncio.sleep(self.takes_s["lease"])
        return leased

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        if self.takes_s["settle"]:
            await asyncio.sleep(self.takes_s["settle"])
        self.trip("settle")
        self.settles.append(list(settlements))
        return await super().settle(incarnation, settlements)

    async def info(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        self.trip("info")
        return await super().info(task_ids)

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
        self.trip("ended")
        return await super().ended(task_ids)

    async def note_loss(self, task_id: int, note: str) -> None:
        self.trip("note_loss")
        await super().note_loss(task_id, note)

    async def listen(self, on_wake: OnWake) -> None:
        self.trip("listen")

        def listener(wake: Wake) -> None:
            if not self.is_mute:
                on_wake(wake)

        if self.has_push:
            self._listeners_by_wake[on_wake] = listener
            await super().listen(listener)

    async def unlisten(self, on_wake: OnWake) -> None:
        self.trip("unlisten")
        if on_wake in self._listeners_by_wake:
            await super().unlisten(self._listeners_by_wake.pop(on_wake))

    def wake(self, *, cancel: bool = False) -> None:
        """As if it had been told that something may be due."""
        for on_wake in list(self._listeners_by_wake):
            on_wake(Wake(cancel))

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        self.beats.append(self.clock.now())
        self.trip("beat")
        return super().beat(incarnation, lease_s, running)


class VirtualHeartbeat(LoopHeartbeat):
    """`Heartbeat` in virtual time. Those whose incarnation is in `frozen` are stopped as by SIGSTOP."""

    frozen: set[int]

    def __init__(self, connect: Callable[[], HeartbeatConnection], incarnation: int, *rest: Any) -> None:
        super().__init__(lambda: FreezingConnection(connect(), lambda: incarnation in self.frozen), incarnation, *rest)


class FreezingConnection:
    """While its process is frozen, no beat leaves it, and it notices nothing."""

    def __init__(self, connection: HeartbeatConnection, is_frozen: Callable[[], bool]) -> None:
        self._connection = connection
        self._is_frozen = is_frozen

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        if self._is_frozen():
            return Beat(is_alive=True)
        return self._connection.beat(incarnation, lease_s, running)

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        return Rescued() if self._is_frozen() else self._connection.rescue(incarnation, dead, overdue)

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        pass

    def close(self) -> None:
        self._connection.close()


class Handler:
    """A work's function: records its runs, takes its time, and settles as told."""

    def __init__(self, clock: VirtualClock, takes_s: float = 0.0) -> None:
        self._clock = clock
        self.takes_s = takes_s
        self.runs: list[Run] = []
        self.at: list[float] = []
        self.canceled: list[int] = []
        self.under_way = 0
        self.most_at_once = 0
        self.began = asyncio.Event()

    @property
    def ids(self) -> list[int]:
        return [run.lease.id for run in self.runs]

    async def __call__(self, run: Run) -> Settlement:
        self.runs.append(run)
        self.at.append(self._clock.now())
        self.began.set()
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.canceled.append(run.lease.id)
            raise
        finally:
            self.under_way -= 1
        return Ended(run.lease.id, run.lease.sequence)


class EngineStage:
    """One clock, one store, what can be run, and workers."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = SpyStore(self.clock)
        self.works = WorkRegistry()
        self.frozen: set[int] = set()

    def without_push(self) -> SpyStore:
        self.store = SpyStore(self.clock, has_push=False)
        return self.store

    def play(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.clock.run(scene())

    def handler(self, name: str = "job", takes_s: float = 0.0, queue: str = "default", **fields: Any) -> Handler:
        handler = Handler(self.clock, takes_s)
        self.works.add(Work(name, queue, handler, **fields))
        return handler

    def worker(self, **options: Any) -> Worker:
        return Worker(self.store, self.works, WorkerOptions(**{"label": "worker", **options}))

    @asynccontextmanager
    async def working(self, grace: float = 0, **options: Any) -> AsyncIterator[Worker]:
        worker = self.worker(**options)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop(grace)

    async def put(self, how_many: int = 1, **fields: Any) -> list[int]:
        """Enqueue without waking a worker."""
        task = NewTask(**{"name": "job", **fields})
        self.store.is_mute = True
        ids = [one.id for one in await MemoryStore.enqueue(self.store, [task] * how_many)]
        await asyncio.sleep(0)  # wake-ups are on their way already
        self.store.is_mute = False
        return ids

    async def put_one(self, **fields: Any) -> int:
        [task_id] = await self.put(**fields)
        return task_id

    async def show(self, task_id: int) -> TaskInfo:
        return (await MemoryStore.info(self.store, [task_id]))[task_id]

    async def bury(self, incarnation: int) -> None:
        """Another worker declared this one dead, and took back what it held."""
        await MemoryStore.sign_off(self.store, incarnation)
        finder = WorkerCard(incarnation=7, label="finder", host="", pid=0, queues=(), slots=0, version="")
        await MemoryStore.sign_on(self.store, finder, 60.0)
        MemoryStore.rescue(self.store, 7, (), ())
        await MemoryStore.sign_off(self.store, 7)


def whats(info: TaskInfo) -> list[str]:
    return [str(entry["what"]) for entry in info.trail]


def done(lease: Lease) -> Ended:
    return Ended(lease.id, lease.sequence)
