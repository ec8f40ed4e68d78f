"""The stage on which stores play: a store that is open, workers that sign on, and the few moves that tests make."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import msgspec

from everpoll.stores.contract import (
    Again,
    Beat,
    Ended,
    EndState,
    HeartbeatConnection,
    Lease,
    NewTask,
    Rescued,
    Store,
    TaskInfo,
    WorkerCard,
)
from stores.backends import Backend

LEASE_S = 60.0
HOUR_S = 3600.0
NOTE = '{"what":"test"}'
WATCH: dict[str, Any] = {"kind": "watch", "cancels_itself": True, "indexed": True}
"""What a watch says about its tasks."""
T = TypeVar("T")

_incarnations = itertools.count(2**62 + 1)  # 63 bits, as real ones: what truncates them is found out


class Stage:
    """One store, open, and what a test does with it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.store = backend.calm(backend.store())
        self._others: list[Store] = []
        self._heartbeat: HeartbeatConnection | None = None
        # A heartbeat has a thread of its own, always the same one: some connections insist on that.
        self._heart = ThreadPoolExecutor(1, "heart")

    @classmethod
    def around(cls, store: Store) -> Self:
        """The same moves with a store that is open already; without heartbeats and passing time."""
        stage = cls.__new__(cls)
        stage.store = store
        return stage

    async def open(self) -> None:
        await self.store.open()

    async def close(self) -> None:
        if self._heartbeat is not None:
            await self._in_heart(self._heartbeat.close)
        self._heart.shutdown()
        for store in (*self._others, self.store):
            await store.close()

    async def another_store(self) -> Store:
        """A second store object on the same tasks, open, as another process would have."""
        store = self.backend.store()
        await store.open()
        self._others.append(store)
        return store

    async def put(self, how_many: int = 1, **fields: Any) -> list[int]:
        """Enqueue equal tasks; their ids."""
        task = NewTask(**{"name": "job", **fields})
        return [one.id for one in await self.store.enqueue([task] * how_many)]

    async def put_one(self, **fields: Any) -> int:
        """Enqueue one task; its id."""
        [task_id] = await self.put(**fields)
        return task_id

    async def worker(self, label: str = "worker", lease_s: float = LEASE_S, **fields: Any) -> int:
        """Sign a worker on; its incarnation."""
        card = card_of(label, **fields)
        await self.store.sign_on(card, lease_s)
        return card.incarnation

    async def take(self, worker: int, most: int = 100, *queues: str) -> list[Lease]:
        """Lease what is due, in order."""
        rooms = dict.fromkeys(queues or ("default",), most)
        return (await self.store.lease(worker, rooms, most)).leases

    async def take_one(self, worker: int, *queues: str) -> Lease:
        """Lease the one task that is due."""
        [lease] = await self.take(worker, 2, *queues)
        return lease

    async def running(self, worker: int, **fields: Any) -> Lease:
        """A new task in the hands of the worker. Nothing else may be due."""
        task_id = await self.put_one(**fields)
        lease = await self.take_one(worker, fields.get("queue", "default"))
        assert lease.id == task_id
        return lease

    async def ended(self, worker: int, state: Any = "done", **fields: Any) -> int:
        """A new task that has ended already; its id."""
        lease = await self.running(worker, **fields)
        assert await self.store.settle(worker, [Ended(lease.id, lease.sequence, state)]) == set()
        return lease.id

    async def beat(self, worker: int, running: Sequence[int] = (), lease_s: float = LEASE_S) -> Beat:
        """One heartbeat, from its own thread."""
        beat: Beat = await self._in_heart((await self._own_heartbeat_connection()).beat, worker, lease_s, list(running))
        return beat

    async def rescue(
        self, worker: int, dead: Sequence[tuple[int, int]] = (), overdue: Sequence[tuple[int, int]] = ()
    ) -> int:
        """What this worker's heartbeat does about others that it has seen standing still."""
        return (await self.rescued(worker, dead, overdue)).tasks

    async def rescued(
        self, worker: int, dead: Sequence[tuple[int, int]] = (), overdue: Sequence[tuple[int, int]] = ()
    ) -> Rescued:
        """The same, with the tasks that ended by it."""
        found: Rescued = await self._in_heart(
            (await self._own_heartbeat_connection()).rescue, worker, list(dead), list(overdue)
        )
        return found

    async def in_heart(self, call: Callable[[HeartbeatConnection], T]) -> T:
        """Do something with the heartbeat connection, in the heartbeat's own thread."""
        answer: T = await self._in_heart(call, await self._own_heartbeat_connection())
        return answer

    async def declare_dead(self, finder: int, *dead: int) -> int:
        """Have `finder` declare these dead by the beat numbers that they show now; how many tasks came back."""
        others = (await self.beat(finder)).others
        return await self.rescue(finder, [(one.incarnation, one.beats) for one in others if one.incarnation in dead])

    async def _own_heartbeat_connection(self) -> HeartbeatConnection:
        if self._heartbeat is None:
            self._heartbeat = await self._in_heart(self.store.heartbeat_connection)
        return self._heartbeat

    async def pass_time(self, seconds: float) -> None:
        await self.backend.pass_time(seconds)

    async def bury(self, worker: int) -> None:
        """Have another worker declare it dead: what it held is back in the queue."""
        finder = await self.worker("finder")
        await self.declare_dead(finder, worker)
        await self.store.sign_off(finder)
        assert not (await self.beat(worker)).is_alive

    async def show(self, task_id: int) -> TaskInfo:
        """The task as people see it."""
        return (await self.store.info([task_id]))[task_id]

    async def due_in_s(self, task_id: int) -> float:
        """Seconds until it is due, by the store's clock; what was just enqueued tells what time that clock shows."""
        shown = await self.show(task_id)
        now = await self.show(await self.put_one(queue="clock"))
        return (shown.due_at - now.created_at).total_seconds()

    async def _in_heart(self, call: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._heart, call, *args)


def card_of(label: str = "worker", **fields: Any) -> WorkerCard:
    """A worker's card with an incarnation that no other test uses."""
    usual = {"host": "here", "pid": 1, "queues": ("default",), "slots": 50, "version": "0"}
    return WorkerCard(**{"incarnation": next(_incarnations), "label": label, **usual, **fields})


def json(value: Any) -> str:
    """The JSON text that callers hand to the store."""
    return msgspec.json.encode(value).decode()


def whats(info: TaskInfo) -> list[str]:
    """The decisions in a task's trail, by name."""
    return [str(entry["what"]) for entry in info.trail]


def done(lease: Lease, result: Any = None, state: EndState = "done", note: str | None = None) -> Ended:
    """Settle as ended."""
    return Ended(lease.id, lease.sequence, state, None if result is None else json(result), note)


def again(lease: Lease, delay_s: float | None = 0.0, **fields: Any) -> Again:
    """Settle as due again."""
    return Again(lease.id, lease.sequence, delay_s, **fields)
