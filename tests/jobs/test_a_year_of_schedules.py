"""A year of schedules in three time zones, with workers that die at any moment: each slot exactly once."""

import random
from collections import Counter

import pytest

from everpoll import Everpoll
from everpoll.engine.work import Run
from everpoll.jobs.schedule_rows import KIND, QUEUE
from everpoll.jobs.schedule_runs import FORGOTTEN_S
from everpoll.stores.contract import TaskFilter, WorkerCard
from everpoll.stores.memory import MemoryStore
from jobs.test_timetables import DAY_S, HOUR_S, ZONES
from stores.backends import SteppedClock

CRON = {"nightly": "30 2 * * *", "half past": "*/30 1,2,3 * * *", "often": "0 */6 * * *"}
YEAR_S = 366 * DAY_S


class Fleet:
    """A store whose clock a test turns, and workers that run its schedules and may die in the middle."""

    def __init__(self, seed: int) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(self.clock)
        self.rng = random.Random(seed)
        self.app = Everpoll(self.store)

        for zone in ZONES:
            for name, cron in CRON.items():

                @self.app.schedule(cron, tz=zone, name=f"{name} {zone}", missed="all", args=(f"{name} {zone}",))
                @self.app.job(name=f"{name} {zone}")
                async def job(which: str) -> None: ...

        self.worker = 0
        self.has_died = False
        self.zombies: list[tuple[int, list[Run]]] = []

    async def sign_on(self) -> None:
        self.worker += 1
        names = tuple(f"schedule:{name}" for name in self.app.schedules)
        card = WorkerCard(
            incarnation=self.worker, label="w", host="h", pid=1, queues=(QUEUE,), slots=9, version="0", names=names
        )
        await self.store.sign_on(card, 3600.0)

    async def look(self) -> None:
        """One worker takes what is due. It may die before it settles, or come back long after others have settled."""
        runs = await self.leased()
        fate = self.rng.random()
        # Three times in a row would be poison: see below.
        if fate < 0.1 and not self.has_died:
            self.has_died = True
            await self.die(runs)
            return
        await self.settle(self.worker, runs)
        self.has_died = False
        if fate < 0.2 and self.zombies:
            await self.settle(*self.zombies.pop())

    async def leased(self) -> list[Run]:
        leased = await self.store.lease(self.worker, {QUEUE: 100}, 100)
        # The event loop's clock does not move with the store's: for these runs it stands still.
        return [Run(lease, self.worker, None, at=leased.at, began=float("inf")) for lease in leased.leases]

    async def die(self, runs: list[Run]) -> None:
        """The worker stops in the middle; another one takes its tasks back, and the dead one may still settle."""
        dead, pulse = self.worker, self.store.pulse()
        self.zombies.append((dead, runs))
        await self.sign_on()
        others = pulse.beat(self.worker, 3600.0, ()).others
        beats = next(one.beats for one in others if one.incarnation == dead)
        pulse.rescue(self.worker, [(dead, beats)], [])

    async def settle(self, worker: int, runs: list[Run]) -> None:
        await self.store.settle(worker, [await self.app.schedules.run(run) for run in runs])

    async def slots(self) -> Counter[tuple[str, float]]:
        found: Counter[tuple[str, float]] = Counter()
        after = None
        while True:
            page = await self.store.tasks(TaskFilter(kind="job"), limit=1_000, after=after)
            found.update((one.name, one.args["slot"]) for one in page.tasks)
            if (after := page.after) is None:
                return found


@pytest.mark.parametrize("seed", range(2))
async def test_each_slot_of_a_year_exactly_once(seed: int) -> None:
    fleet = Fleet(seed)
    began = fleet.clock.wall()
    await fleet.sign_on()
    await fleet.app.schedules.publish()
    await fleet.look()
    while fleet.clock.wall() < began + YEAR_S:
        # Sometimes no worker runs for days: the slots are made up for.
        fleet.clock.step(fleet.rng.choice([HOUR_S, 3 * HOUR_S, 5 * DAY_S if fleet.rng.random() < 0.05 else HOUR_S]))
        for _ in range(3):
            await fleet.look()
    for _ in range(50):
        await fleet.look()
    now = fleet.clock.wall()
    found = await fleet.slots()
    assert set(found.values()) == {1}
    for name, schedule in fleet.app.schedules.items():
        mine = sorted(slot for job, slot in found if job == name)
        expected = []
        for slot in schedule.timetable.slots(mine[0] - 1.0):
            if slot > now:
                break
            expected.append(slot)
        assert mine == expected, name
        assert mine[0] - began <= 1.5 * DAY_S
        assert len(mine) > 360


async def test_a_schedule_whose_workers_died_again_and_again_goes_on_where_it_was_when_a_worker_starts() -> None:
    fleet = Fleet(0)
    await fleet.sign_on()
    await fleet.app.schedules.publish()
    await fleet.look()
    before = {one.name: one.next_at for one in await fleet.app.schedules.list()}
    fleet.clock.step(2 * DAY_S)
    for _ in range(3):
        fleet.has_died = False
        await fleet.die(await fleet.leased())
    assert await fleet.app.schedules.list() == []
    await fleet.app.schedules.publish()
    assert {one.name: one.next_at for one in await fleet.app.schedules.list()} == before
    await fleet.look()
    assert all(count == 1 for count in (await fleet.slots()).values())
    first = {name: min(slot for job, slot in await fleet.slots() if job == name) for name in fleet.app.schedules}
    assert first == {name: at.timestamp() for name, at in before.items() if at is not None}


async def test_a_schedule_that_no_live_worker_registers_is_gone() -> None:
    fleet = Fleet(0)
    await fleet.sign_on()
    await fleet.app.schedules.publish()
    stranger = Everpoll(fleet.store)
    card = WorkerCard(incarnation=99, label="w", host="h", pid=1, queues=(QUEUE,), slots=9, version="0")
    await fleet.store.sign_on(card, 3600.0)
    await fleet.look()
    await fleet.store.sign_off(fleet.worker)
    fleet.clock.step(DAY_S)
    for _ in range(int(FORGOTTEN_S / 600) + 2):
        fleet.clock.step(600.0)
        leased = await fleet.store.lease(99, {QUEUE: 100}, 100)
        runs = [Run(lease, 99, None, at=leased.at, began=float("inf")) for lease in leased.leases]
        await fleet.store.settle(99, [await stranger.schedules.run(run) for run in runs])
    left = await fleet.store.tasks(TaskFilter(kind=KIND, indexed=True, state="queued"), limit=100)
    ended = [
        one for one in (await fleet.store.tasks(TaskFilter(kind=KIND, indexed=True), limit=100)).tasks if one.ended_at
    ]
    assert ended, "some were due while no worker registered them"
    assert all("no live worker has registered it for 1h" in str(one.trail[-1]["why"]) for one in ended)
    assert {one.key for one in left.tasks} | {one.key for one in ended} == set(fleet.app.schedules)
    assert await fleet.slots() == Counter()
