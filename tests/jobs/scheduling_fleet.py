"""Workers that run schedules in virtual time, and may die at any moment, on any store.

A schedule knows the time from its lease alone, and asks to be due again after a delay. So time is turned here: each
lease is given the virtual time, and the tasks of schedules are moved towards the present of their store.
"""

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, NamedTuple, Self

import asyncpg

from everpoll import Everpoll
from everpoll.engine.work import Run
from everpoll.jobs.schedule_rows import QUEUE
from everpoll.jobs.timetable import Missed
from everpoll.stores.contract import Store, TaskFilter, WorkerCard
from stores.backends import Backend, MemoryBackend

LEASE_S = 3600.0
SQLITE = "update everpoll_tasks set due_at = due_at - ? * 1000000 where kind = 'schedule'"
POSTGRES = "update everpoll.tasks set due_at = due_at - make_interval(secs => $1) where kind = 'schedule'"


class Planned(NamedTuple):
    """A schedule."""

    cron: str
    tz: str
    missed: Missed


class Look(NamedTuple):
    """A run of a schedule that its worker settled in time."""

    schedule: str
    at: float


class SchedulingFleet:
    """A store whose time a test turns, and workers that run its schedules and may die in the middle."""

    def __init__(self, place: Backend, schedules: Mapping[str, Planned], rng: random.Random, now: float) -> None:
        self._place = place
        self.store: Store = place.calm(place.store())
        self.rng = rng
        self.now = now
        self.app = Everpoll(self.store)
        for name, planned in schedules.items():

            @self.app.schedule(planned.cron, tz=planned.tz, name=name, missed=planned.missed, args=(name,))
            @self.app.job(name=name)
            async def job(which: str) -> None: ...

        self._connection: Any = None
        self.looks: list[Look] = []
        self.deaths = 0
        self.worker = 0
        self._has_died = False
        self._zombies: list[tuple[int, list[Run]]] = []

    async def sign_on(self) -> None:
        self.worker += 1
        names = tuple(f"schedule:{name}" for name in self.app.schedules)
        card = WorkerCard(
            incarnation=self.worker, label="w", host="h", pid=1, queues=(QUEUE,), slots=9, version="0", names=names
        )
        await self.store.sign_on(card, LEASE_S)

    async def step(self, seconds: float) -> None:
        """Let so much time pass."""
        self.now += seconds
        if isinstance(self._place, MemoryBackend):
            await self._place.pass_time(seconds)
        elif (url := str(self._place.url)).startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as file, file:
                file.execute(SQLITE, [seconds])
        else:
            await self._connection.execute(POSTGRES, seconds)

    async def look(self) -> int:
        """One worker takes what is due; how many schedules that were.

        It may die before it settles, or come back long after others have settled.
        """
        runs = await self.leased()
        fate = self.rng.random()
        # A schedule that loses three workers in a row fails until a worker starts: a test of its own.
        if runs and fate < 0.2 and not self._has_died:
            self._has_died = True
            await self.die(runs)
            return len(runs)
        await self._settle(self.worker, runs)
        self.looks += [Look(run.lease.key or "", run.at) for run in runs]
        self._has_died = False
        if fate < 0.4 and self._zombies:
            await self._settle(*self._zombies.pop(0))
        return len(runs)

    async def look_until_nothing_is_due(self) -> None:
        while await self.look():
            pass

    async def leased(self) -> list[Run]:
        leased = await self.store.lease(self.worker, {QUEUE: 100}, 100)
        # The event loop's clock does not turn with the test's: for these runs it stands still.
        return [Run(lease, self.worker, None, at=self.now, began=float("inf")) for lease in leased.leases]

    async def die(self, runs: list[Run]) -> None:
        """The worker stops in the middle; another one takes its tasks back, and the dead one may still settle."""
        self.deaths += 1
        dead = self.worker
        self._zombies.append((dead, runs))
        await self.sign_on()
        await asyncio.to_thread(self._rescue, dead)

    def _rescue(self, dead: int) -> None:
        heartbeat = self.store.heartbeat_connection()
        others = heartbeat.beat(self.worker, LEASE_S, ()).others
        beats = next(one.beats for one in others if one.incarnation == dead)
        heartbeat.rescue(self.worker, [(dead, beats)], [])
        heartbeat.close()

    async def _settle(self, worker: int, runs: list[Run]) -> None:
        await self.store.settle(worker, [await self.app.schedules.run(run) for run in runs])

    async def times(self) -> Counter[tuple[str, float]]:
        """How often each time of each schedule has enqueued its job."""
        found: Counter[tuple[str, float]] = Counter()
        after = None
        while True:
            page = await self.store.tasks(TaskFilter(kind="job"), limit=1_000, after=after)
            found.update((one.name, one.args["scheduled_for"]) for one in page.tasks)
            if (after := page.after) is None:
                return found

    async def __aenter__(self) -> Self:
        """The first worker starts; a first look sets where the schedules begin."""
        await self.store.open()
        if str(self._place.url).startswith("postgres"):
            self._connection = await asyncpg.connect(self._place.url)
        await self.sign_on()
        await self.app.schedules.publish()
        while not self.looks:
            await self.look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.app.close()
        await self.store.close()
        if self._connection is not None:
            await self._connection.close()
