"""explore: runs a story again and again, with a crash, then a zombie, at every point that it passes.

    exploration = explore(
        make=lambda world: build_app(world.store, world.clock, world.remote),   # a process of yours, made anew
        story=begin_the_runs,                                                   # what happens, with a worker running
        check=started_once_and_cleaned_up_once,                                 # must hold in every case
        remote=lambda: ScriptedRemote(start=[…], status=[…]),
    )

Promises: a crash and a zombie are tried at every point of the undisturbed story; a new process replaces one that died a
moment later; a zombie goes on when everything has ended without it. Virtual time: hours pass at once. The error for the
first story that breaks `check` names the point and the fate.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

from everpoll.errors import BadInput, EverpollError
from everpoll.policy import Duration, human, seconds
from everpoll.stores.contract import TaskFilter
from everpoll.stores.memory import MemoryStore
from everpoll.testing.clock import VirtualClock
from everpoll.testing.points import Fate, InjectedFault, Process, here
from everpoll.testing.processes import ProcessStore

RESTART_S = 1.0
CHECK_S = 1.0


class AppLike(Protocol):
    """The part of an app that `explore` needs; `Everpoll` has it."""

    def working(self) -> AbstractAsyncContextManager[None]:
        """Run a worker for the length of a block."""
        ...


@dataclass(slots=True, eq=False)
class World:
    """One run of the story."""

    clock: VirtualClock
    database: MemoryStore
    fault: InjectedFault
    remote: Any = None
    notes: dict[str, Any] = field(default_factory=dict)
    """For your own notes: what the story did, for the check."""
    processes: list[Process] = field(default_factory=list)

    @property
    def store(self) -> Any:
        """The store for the process that is being made."""
        process = here.get()
        return ProcessStore(self.database, process) if process is not None else self.database

    async def is_over(self) -> bool:
        """Return True if every task has ended."""
        for state in ("queued", "running"):
            if (await self.database.tasks(TaskFilter(state=state), limit=1)).tasks:
                return False
        return True


Make = Callable[[World], AppLike]
Story = Callable[[World, Any], Awaitable[Any]]
Check = Callable[[World], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Exploration:
    """The result of an exploration."""

    points: tuple[str, ...]
    """The points of the undisturbed story, in order."""
    stories: int
    """How many stories were run."""


class BrokenPromise(EverpollError, AssertionError):
    """A story went wrong; the message names the point and the fate of the process."""


def explore(
    make: Make,
    story: Story,
    check: Check,
    *,
    remote: Callable[[], Any] = lambda: None,
    fates: tuple[Fate, ...] = ("crash", "zombie"),
    lasts: Duration = "1d",
) -> Exploration:
    """Run the story undisturbed, then with every fate at every point; `BrokenPromise` names the first that went wrong.

    `make` builds an app on `world.store`, `world.clock` and `world.remote`, as a process of yours does when it starts.
    """
    limit_s = seconds(lasts, name="lasts")
    if not set(fates) <= set(get_args(Fate)):
        raise BadInput(f"fates={fates!r}: write some of {get_args(Fate)!r}")

    def tell(fault: InjectedFault) -> list[str]:
        clock = VirtualClock()
        world = World(clock, MemoryStore(clock), fault)
        clock.run(_run_story(world, make, story, check, remote, limit_s))
        return fault.passed

    points = _guarded(lambda: tell(InjectedFault()), "undisturbed")
    stories = 1
    for fate in fates:
        for number, name in enumerate(points):
            where = f"{fate} at point {number} of {len(points)}, {name}"
            _guarded(lambda: tell(InjectedFault(number, fate)), where)  # noqa: B023 - called at once
            stories += 1
    return Exploration(tuple(points), stories)


def _guarded(tell: Callable[[], list[str]], where: str) -> list[str]:
    try:
        return tell()
    except Exception as error:
        raise BrokenPromise(f"{where}: {type(error).__name__}: {error}") from error


async def _run_story(
    world: World, make: Make, story: Story, check: Check, remote: Callable[[], Any], limit_s: float
) -> None:
    world.remote = remote()
    workers = [_Running(world, make)]
    await workers[0].started.wait()
    try:
        # The story runs in a process without a worker, which does not die with the others.
        await story(world, make(world))
        until = world.clock.now() + limit_s
        while not await world.is_over():
            if world.clock.now() >= until:
                raise TimeoutError(f"the story has not ended within {human(limit_s)}")
            if world.fault.injected.is_set() and len(workers) == 1:
                await asyncio.sleep(RESTART_S)
                workers.append(_Running(world, make))
            await asyncio.sleep(CHECK_S)
        for process in world.processes:
            if process.state == "frozen":
                process.state = "alive"
                process.thawed.set()
        # Give zombies time to finish what they were doing.
        await asyncio.sleep(600)
        await check(world)
    finally:
        for worker in workers:
            await worker.stop()


class _Running:
    """A process with a worker."""

    def __init__(self, world: World, make: Make) -> None:
        self._process = Process(f"process {len(world.processes) + 1}", world.fault)
        world.processes.append(self._process)
        self.started = asyncio.Event()
        self._leave = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(world, make))

    async def _run(self, world: World, make: Make) -> None:
        here.set(self._process)
        app = make(world)
        async with app.working():
            self.started.set()
            await self._leave.wait()

    async def stop(self) -> None:
        """End the process: shut its worker down if it lives, else cancel it."""
        self._leave.set()
        if self._process.state != "alive":
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
