"""A fleet in virtual time: services that a test turns up and down, processes that look at them, and channels.

A process can be frozen before or after any of its writes. It is dead to the others then, and its tasks are rescued;
thawed, it goes on with what it was about, as a process that was stopped for minutes does.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, cast

from everpoll.engine.options import WorkerOptions
from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.errors import StoreUnavailable
from everpoll.http import Answer, HttpClient, Request
from everpoll.monitors.alerting import Alert, Message
from everpoll.monitors.alerts.channel import Channel, Tools, Undelivered
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.incident_rows import IncidentRows
from everpoll.monitors.alerts.incidents import IncidentInfo, Incidents
from everpoll.monitors.alerts.letter import Letter
from everpoll.monitors.alerts.maintenance_windows import MaintenanceWindows
from everpoll.monitors.alerts.runtime import Alerts
from everpoll.monitors.checks import assignment as assignments
from everpoll.monitors.checks.assignment import CHECK, KIND, QUEUE, Assignment
from everpoll.monitors.control import read as read_control
from everpoll.monitors.control import write as write_control
from everpoll.monitors.decision import decide, register, remove, wake
from everpoll.monitors.definition import Definition
from everpoll.monitors.look import Look
from everpoll.monitors.options import define
from everpoll.monitors.report import Dependency, Report, Status
from everpoll.stores.contract import Again, Beat, Ended, NewTask, Rescued, Settlement, Store, encode
from everpoll.stores.memory import MemoryStore
from everpoll.stores.operations import Revision
from everpoll.testing import VirtualClock

LEASE_S = 30.0
WRITES = ("enqueue", "revise", "progress", "settle", "retry")
Moment = Literal["before", "after"]


class MortalStore:
    """The way of one process to the store, which can be frozen."""

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.writes: list[str] = []
        self.dies_at: tuple[int, Moment] | None = None
        """The number of the write, from 0."""
        self.freezes_after = ""
        """The name of a write."""
        self.died: asyncio.Event = asyncio.Event()
        self.is_away = False
        """The database cannot be reached from here."""

    @property
    def is_frozen(self) -> bool:
        return not self._thawed.is_set()

    def freeze(self) -> None:
        self._thawed.clear()
        self.died.set()

    def thaw(self) -> None:
        self._thawed.set()

    def heartbeat_connection(self) -> "MortalConnection":
        return MortalConnection(self, self._inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(value):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._thawed.wait()
            if self.is_away and name != "back_off":
                raise StoreUnavailable("connection refused")
            number = len(self.writes)
            if name in WRITES:
                self.writes.append(f"{name} {args[0] if name == 'enqueue' else ''}")
                if self.dies_at == (number, "before"):
                    self.freeze()
                    await self._thawed.wait()
            answer = await value(*args, **kwargs)
            if name in WRITES and (self.dies_at == (number, "after") or self.freezes_after == name):
                self.freezes_after = ""
                self.freeze()
            await self._thawed.wait()
            return answer

        return call


class MortalConnection:
    """While its process is frozen, no beat leaves it, and it notices nothing."""

    def __init__(self, store: MortalStore, inner: MemoryStore) -> None:
        self._store = store
        self._inner = inner

    def beat(self, *args: Any) -> Beat:
        if self._store.is_away:
            raise StoreUnavailable("connection refused")
        return Beat(is_alive=True) if self._store.is_frozen else self._inner.beat(*args)

    def rescue(self, *args: Any) -> Rescued:
        return Rescued() if self._store.is_frozen else self._inner.rescue(*args)

    def publish(self, *args: Any) -> None:
        """It publishes nothing."""

    def close(self) -> None:
        """There is no connection."""


class World:
    """What services answer."""

    def __init__(self) -> None:
        self.statuses: dict[str, Status] = {}
        self.dependencies: dict[str, tuple[Dependency, ...]] = {}
        self.looks = 0

    def look(self, name: str, now: float) -> Look:
        self.looks += 1
        status = self.statuses.get(name, Status.UP)
        report = Report(status=status, format="proactive-deps", dependencies=self.dependencies.get(name, ()))
        if status is Status.DOWN:
            return Look(started_at=now, ended_at=now, reached=False, error="connection refused")
        return Look(started_at=now, ended_at=now, reached=True, status=status, report=report)


class ScriptedChecks:
    """Looks at services as the real ones do, in a world of the test's own."""

    def __init__(self, world: World, incidents: IncidentRows) -> None:
        self._world = world
        self._incidents = incidents
        self.work = Work(CHECK, QUEUE, self.run, handles_cancel=True)

    async def run(self, run: Run) -> Settlement:
        lease, now = run.lease, run.now(asyncio.get_running_loop().time())
        definition = assignments.read(lease.args).definition
        control = read_control(lease.memory or "{}")
        if lease.cancel_requested:
            decision = remove(definition, control, now)
            await self._incidents.closed(decision.closed)
            return Ended(lease.id, lease.sequence, "canceled")
        woken = wake(definition, control, now)
        if woken.decision is not None:
            decision = woken.decision
        else:
            decision = decide(definition, control, self._world.look(definition.name, now), now)
        if decision.opened:
            await self._incidents.opened(decision.opened)
        if decision.closed:
            await self._incidents.closed(decision.closed)
        delay_s = max(0.0, decision.next_at - now)
        return Again(lease.id, lease.sequence, delay_s, refund=True, memory=write_control(decision.control))


class Inbox:
    """A channel that keeps what arrives, and fails as it is told to."""

    def __init__(self, clock: VirtualClock, *, drops_repeats: bool = False) -> None:
        self._clock = clock
        self.drops_repeats = drops_repeats
        self.letters: list[Letter] = []
        self.arrived_at: list[float] = []
        self.failures: list[Undelivered] = []
        """The next tries fail with these; one that is not certain arrives all the same."""
        self.takes_s = 0.0
        self.tries = 0

    async def deliver(self, letter: Letter, now: float, tools: Tools) -> None:
        self.tries += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure is None or not failure.is_certain:
            self.letters.append(letter)
            self.arrived_at.append(self._clock.now())
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        if failure is not None:
            raise failure

    @property
    def messages(self) -> list[Message]:
        return [letter.message for letter in self.letters]

    @property
    def headlines(self) -> list[str]:
        """Kind and thing of every notice that arrived; a repeat of a letter is dropped, as a receiver does."""
        letters = (
            {letter.id: letter for letter in self.letters} if self.drops_repeats else dict(enumerate(self.letters))
        )
        return [f"{one.kind} {one.thing}" for letter in letters.values() for one in letter.notices]


class NoClient(HttpClient):
    async def send(self, request: Request) -> Answer:
        raise AssertionError("no test of a fleet sends anything")


class Process:
    """One process of the fleet."""

    def __init__(self, stage: "Stage", label: str, channels: Channels) -> None:
        self.store = MortalStore(stage.store)
        store = cast("Store", self.store)
        self.alerts = Alerts(store, channels, NoClient(), {})
        works = WorkRegistry()
        for work in (*self.alerts.works, ScriptedChecks(stage.world, self.alerts.rows).work):
            works.add(work)
        works.more_queues = self.alerts.queues
        self.worker = Worker(store, works, WorkerOptions(slots=50, lease_s=LEASE_S, keep_s=None, label=label))


class Stage:
    """One clock, one store, a world of services, and processes."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.world = World()
        self.channels = Channels()
        self.inboxes: dict[str, Inbox] = {}
        self.processes: list[Process] = []
        self.incidents = Incidents(self._opened, self.wall)
        self.maintenance = MaintenanceWindows(self._opened)

    def play(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            try:
                await scene()
            finally:
                await self.end()

        self.clock.run(whole())

    def wall(self) -> float:
        return self.store._now()

    def inbox(self, name: str = "ops", group: str = "1m", **more: Any) -> Inbox:
        inbox = self.inboxes[name] = Inbox(self.clock, **more)
        channel: Channel = inbox
        self.channels.add(name, channel, group)
        return inbox

    async def service(self, name: str = "billing", **options: Any) -> Definition:
        options = {"every": "5s", "alert": Alert(after=2, to=["ops"]), "backoff": None, "breaker": None} | options
        definition = define(name, f"http://127.0.0.1/{name}", cast("Any", options))
        first = register(definition, self.wall())
        task = NewTask(
            name=CHECK,
            args=assignments.write(Assignment(definition=definition)),
            kind=KIND,
            queue=QUEUE,
            key=name,
            delay_s=max(0.0, first.next_at - self.wall()),
            memory=write_control(first.control),
            cancels_itself=True,
            indexed=True,
        )
        await self.store.enqueue([task])
        return definition

    async def change(self, name: str, **changes: Any) -> None:
        row = await self.store.find(KIND, name)
        assert row is not None
        args = encode({**row.args, **changes})
        assert await self.store.revise([Revision(KIND, name, args, expects=encode(row.args))]) == [row.id]

    async def remove(self, name: str) -> None:
        row = await self.store.find(KIND, name)
        assert row is not None
        await self.store.cancel(row.id, encode({"what": "cancel"}))

    def turn(self, status: Status, *names: str) -> None:
        for name in names or ("billing",):
            self.world.statuses[name] = status

    async def process(self, channels: Channels | None = None, dies_at: tuple[int, Moment] | None = None) -> Process:
        label = f"process-{len(self.processes)}"
        process = Process(self, label, self.channels if channels is None else channels)
        process.store.dies_at = dies_at
        self.processes.append(process)
        await process.worker.start()
        return process

    async def end(self) -> None:
        """Stop every process; a frozen one is thawed first, and finds its leases lost."""
        for process in self.processes:
            process.store.thaw()
        for process in self.processes:
            await process.worker.stop(5.0)
            await process.alerts.close()

    async def open_ones(self) -> Sequence[IncidentInfo]:
        return await self.incidents.list()

    async def _opened(self) -> Store:
        return cast("Store", self.store)

    @asynccontextmanager
    async def running(self, how_many: int = 1) -> AsyncIterator[None]:
        for _ in range(how_many):
            await self.process()
        yield
