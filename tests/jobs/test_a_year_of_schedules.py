"""A year of schedules in three time zones, with workers that die at any moment: each time exactly once.

The expected times come from `walked_times`, which shares nothing with the code under test.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.engine.work import Run
from everpoll.jobs.schedule_rows import KIND, QUEUE
from everpoll.jobs.schedule_runs import FORGOTTEN_S
from everpoll.jobs.timetable import LATE_S, Missed, timetable_of
from everpoll.stores.contract import TaskFilter, WorkerCard
from jobs.conftest import stores
from jobs.scheduling_fleet import Planned, SchedulingFleet
from jobs.test_timetables import DAY_S, EXPRESSIONS, HOUR_S, ZONES
from jobs.walked_times import utc, walked
from stores.backends import Backend, MemoryBackend
from stores.conftest import made

CRON = {"nightly": "30 2 * * *", "half past": "*/30 1,2,3 * * *", "often": "0 */6 * * *"}
CRONS = (*EXPRESSIONS, *CRON.values())
BEGAN, ENDED = utc(2026, 1, 1), utc(2027, 1, 1)
PLANS = {f"{name} {zone}": Planned(cron, zone, "all") for zone in ZONES for name, cron in CRON.items()}
HOURLY = (HOUR_S, 3 * HOUR_S, HOUR_S, 5 * HOUR_S) * 10 + (5 * DAY_S,)
WIDELY = (HOUR_S, 12 * HOUR_S, 3 * DAY_S, 20 * DAY_S)


@pytest.fixture(params=stores())
def place(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Backend]:
    """An empty place for tasks."""
    with made(request, runner, tmp_path, migrated=True) as place:
        yield place


def memory_fleet() -> SchedulingFleet:
    return SchedulingFleet(MemoryBackend(), PLANS, random.Random(0), BEGAN)


@pytest.mark.parametrize("zone", ZONES)
def test_the_slots_of_a_year_are_those_that_the_documentation_says(zone: str) -> None:
    for cron, expected in walked(CRONS, zone, BEGAN, ENDED).items():
        found = []
        for time in timetable_of("a test", cron, None, zone).times(BEGAN):
            if time > ENDED:
                break
            found.append(time)
        assert found == expected, cron


@pytest.mark.parametrize("steps", [WIDELY, pytest.param(HOURLY, marks=pytest.mark.prove)], ids=["widely", "hourly"])
async def test_each_slot_of_a_year_exactly_once(place: Backend, steps: tuple[float, ...]) -> None:
    """Looks come in time, or after days in which no worker ran: then the times are made up for."""
    async with SchedulingFleet(place, PLANS, random.Random(len(steps)), BEGAN) as fleet:
        while fleet.now < ENDED:
            await fleet.step(min(fleet.rng.choice(steps), ENDED - fleet.now))
            for _ in range(3):
                await fleet.look()
        await fleet.look_until_nothing_is_due()
        found = await fleet.times()
    assert fleet.deaths > 10
    assert set(found.values()) == {1}
    for name, planned in PLANS.items():
        expected = walked(CRONS, planned.tz, BEGAN, ENDED)[planned.cron]
        assert sorted(time for schedule, time in found if schedule == name) == expected, name


async def test_missed_slots_run_as_missed_says_whatever_workers_die(place: Backend) -> None:
    """Of the times since the last look that was settled: all, the latest, or the latest if it is on time."""
    policies: tuple[Missed, ...] = ("all", "once", "skip")
    plans: dict[str, Planned] = {missed: Planned("*/30 1,2,3 * * *", "Europe/Berlin", missed) for missed in policies}
    to_come = iter(times := walked(CRONS, "Europe/Berlin", BEGAN, ENDED)["*/30 1,2,3 * * *"])
    async with SchedulingFleet(place, plans, random.Random(1), BEGAN) as fleet:
        while fleet.now < BEGAN + 100 * DAY_S:
            # The next time, or one of the next days, on time or late.
            time = [next(to_come) for _ in range(fleet.rng.choice((1, 1, 2, 20, 20)))][-1]
            await fleet.step(time - fleet.now + fleet.rng.choice((1.0, LATE_S - 1.0, LATE_S + 1.0, 600.0)))
            await fleet.look_until_nothing_is_due()
        found = await fleet.times()
    expected: dict[str, list[float]] = {
        "all": [time for time in times if time <= fleet.now],
        "once": [],
        "skip": [],
    }
    dropped: dict[str, int] = defaultdict(int)
    for name in ("once", "skip"):
        last = BEGAN
        for at in sorted(look.at for look in fleet.looks if look.schedule == name):
            missed = [time for time in times if last < time <= at]
            last = at
            kept = missed[-1:] if name == "once" or (missed and at - missed[-1] <= LATE_S) else []
            expected[name] += kept
            dropped[name] += len(missed) - len(kept)
    assert fleet.deaths > 5
    assert dropped["skip"] > dropped["once"] > 5
    assert set(found.values()) == {1}
    assert {name: sorted(time for one, time in found if one == name) for name in policies} == expected


async def test_a_schedule_whose_workers_died_again_and_again_goes_on_where_it_was_when_a_worker_starts() -> None:
    async with memory_fleet() as fleet:
        before = {one.name: one.next_at for one in await fleet.app.schedules.list()}
        await fleet.step(2 * DAY_S)
        for _ in range(3):
            await fleet.die(await fleet.leased())
        assert await fleet.app.schedules.list() == []
        await fleet.app.schedules.publish()
        assert {one.name: one.next_at for one in await fleet.app.schedules.list()} == before
        await fleet.look_until_nothing_is_due()
        times = await fleet.times()
        assert set(times.values()) == {1}
        first = {name: min(time for job, time in times if job == name) for name in fleet.app.schedules}
        assert first == {name: at.timestamp() for name, at in before.items() if at is not None}


async def test_a_schedule_that_no_live_worker_registers_is_gone() -> None:
    async with memory_fleet() as fleet:
        stranger = Everpoll(fleet.store)
        card = WorkerCard(incarnation=99, label="w", host="h", pid=1, queues=(QUEUE,), slots=9, version="0")
        await fleet.store.sign_on(card, 3600.0)
        await fleet.look()
        await fleet.store.sign_off(fleet.worker)
        await fleet.step(DAY_S)
        for _ in range(int(FORGOTTEN_S / 600) + 2):
            await fleet.step(600.0)
            leased = await fleet.store.lease(99, {QUEUE: 100}, 100)
            runs = [Run(lease, 99, None, at=fleet.now, began=float("inf")) for lease in leased.leases]
            await fleet.store.settle(99, [await stranger.schedules.run(run) for run in runs])
        left = await fleet.store.tasks(TaskFilter(kind=KIND, indexed=True, state="queued"), limit=100)
        ended = [
            one
            for one in (await fleet.store.tasks(TaskFilter(kind=KIND, indexed=True), limit=100)).tasks
            if one.ended_at
        ]
        assert ended, "some were due while no worker registered them"
        assert all("no live worker has registered it for 1h" in str(one.trail[-1]["why"]) for one in ended)
        assert {one.key for one in left.tasks} | {one.key for one in ended} == set(fleet.app.schedules)
        assert not await fleet.times()
