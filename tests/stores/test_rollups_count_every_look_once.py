"""Rollups of minutes, hours and days, and of any range, count every look once, before and after it is rolled up."""

import asyncio
import math
from itertools import pairwise

import pytest

from everpoll.errors import BadInput
from everpoll.policy import Rollup, Tally, uptime_of
from everpoll.stores.health import BUCKET_LIMIT, HealthRecords, NewLook, Step
from stores.health_looks import DAY_S, HOUR_S, MINUTE_S, START, look, record_all, roll_up_all
from stores.stage import Stage

STEPS: list[tuple[Step, float]] = [("minute", MINUTE_S), ("hour", HOUR_S), ("day", DAY_S)]


@pytest.fixture
def health(stage: Stage) -> HealthRecords:
    return stage.store.health


def rolled(looks: list[NewLook]) -> Rollup:
    """What these looks come to, counted one by one."""
    tally = Tally()
    for one in looks:
        latency_us = None if one.latency_ms is None else round(one.latency_ms * 1_000)
        tally.add(one.status, round(one.span_s * 1_000), latency_us)
    return tally.rollup()


def two_days() -> list[NewLook]:
    """A look every 100 s for two days, with an outage, gaps and all statuses; the spans do not overlap."""
    looks = []
    for number in range(1_728):
        at_s = number * 100.0
        if 60_000 <= at_s < 70_000:
            continue
        is_down = 30_000 <= at_s < 33_000
        status = "down" if is_down else ("degraded" if number % 50 == 0 else "unknown" if number % 70 == 0 else "up")
        latency_ms = None if is_down else 10.0 + number % 97
        looks.append(look(at_s, status=status, latency_ms=latency_ms, span_s=100.0))
    return looks


RANGES = [
    (0.0, 2 * DAY_S),
    (0.0, DAY_S),
    (HOUR_S, 5 * HOUR_S),
    (MINUTE_S, 2 * MINUTE_S),
    (3 * MINUTE_S, 3 * HOUR_S + 7 * MINUTE_S),
    (23 * HOUR_S + 58 * MINUTE_S, DAY_S + 2 * MINUTE_S),
    (30 * MINUTE_S, 35 * MINUTE_S),
    (-DAY_S, 10 * DAY_S),
    (5 * DAY_S, 6 * DAY_S),
    (HOUR_S, HOUR_S),
]


@pytest.mark.parametrize("rolled_s", [0.0, 40_000.0, 3 * DAY_S], ids=["open", "half", "rolled up"])
async def test_any_range_to_the_minute(health: HealthRecords, rolled_s: float) -> None:
    looks = two_days()
    early = [one for one in looks if one.at < START + rolled_s]
    await record_all(health, early)
    await roll_up_all(health)
    await record_all(health, looks[len(early) :])
    for from_s, to_s in RANGES:
        expected = rolled([one for one in looks if START + from_s <= one.at < START + to_s])
        assert await health.summary("billing", START + from_s, START + to_s) == expected, (from_s, to_s)
    whole = await health.summary("billing", 0, math.inf)
    assert whole == rolled(looks)
    assert whole.latency_ms(0.5) == pytest.approx(57, rel=0.07)
    uptime = uptime_of(whole, round(2 * DAY_S * 1_000))
    known = [one for one in looks if one.status != "unknown"]
    down = [one for one in known if one.status == "down"]
    assert uptime.percent == pytest.approx(100 * (1 - len(down) / len(known)), abs=1e-4)
    assert uptime.covered == pytest.approx(len(known) * 100 / (2 * DAY_S), abs=1e-4)


@pytest.mark.parametrize("rolled_s", [0.0, 40_000.0, 3 * DAY_S], ids=["open", "half", "rolled up"])
@pytest.mark.parametrize(("step", "step_s"), STEPS)
async def test_buckets_of_each_step(health: HealthRecords, rolled_s: float, step: Step, step_s: float) -> None:
    """Those with looks, oldest first; the first and the last are whole."""
    looks = two_days()
    early = [one for one in looks if one.at < START + rolled_s]
    await record_all(health, early)
    await roll_up_all(health)
    await record_all(health, looks[len(early) :])
    found = await health.rollups("billing", step, START + 90, START + 1.5 * DAY_S)
    expected: dict[float, list[NewLook]] = {}
    for one in looks:
        bucket = START + (one.at - START) // step_s * step_s
        if START + 90 - step_s < bucket < START + 1.5 * DAY_S:
            expected.setdefault(bucket, []).append(one)
    assert [(one.at, one.rollup) for one in found] == [(at, rolled(some)) for at, some in expected.items()]
    assert await health.rollups("billing", step, START + 10 * DAY_S, START + 11 * DAY_S) == []


async def test_the_availability_of_many_services_at_once(health: HealthRecords) -> None:
    """Since the hour of an instant; for most services, and for a few of them."""
    names = [f"service-{number}" for number in range(12)]
    looks = [look(at_s, name, span_s=600.0) for at_s in range(0, 180_000, 600) for name in names]
    await record_all(health, looks[:2_000])
    await roll_up_all(health)
    await record_all(health, looks[2_000:])
    for asked in (names, names[2:4]):
        for from_s, first_s in (
            (5 * HOUR_S + 1_700, 5 * HOUR_S),
            (DAY_S, DAY_S),
            (-1, 0),
            (26 * HOUR_S + 5, 26 * HOUR_S),
        ):
            found = await health.availability([*asked, "unheard of"], START + from_s)
            assert set(found) == set(asked)
            for name in asked:
                of_it = [one for one in looks if one.service == name and one.at >= START + first_s]
                exact = rolled(of_it)
                assert (found[name].up_ms, found[name].timed) == (exact.up_ms, len(of_it))
                assert found[name].latency_sum_us == exact.latency_sum_us
                assert found[name].latency_mean_ms == 12.5
                assert found[name].down_ms == found[name].degraded_ms == found[name].unknown_ms == 0
    assert await health.availability(names, START + 100 * DAY_S) == {}


async def test_a_look_stands_until_the_next_one(health: HealthRecords) -> None:
    """A caller that asks for a look by hand, again and again during an outage, makes that no longer."""
    looks = [look(at_s, status="down", span_s=300.0) for at_s in (0, 10, 20, 30)]
    await health.record([*looks, look(330, span_s=30.0)])
    await roll_up_all(health)
    found = await health.summary("billing", START, START + HOUR_S)
    assert (found.down, found.down_ms, found.up_ms) == (4, 330_000, 30_000)
    assert [one.span_s for one in await health.looks("billing", 0, math.inf)] == [30.0, 300.0, 300.0, 300.0, 300.0]


@pytest.mark.parametrize("first_s", [0.0, 1_800.0, HOUR_S - 200.0, DAY_S - 200.0])
async def test_no_time_is_counted_twice_where_each_look_is_rolled_up_alone(
    health: HealthRecords, first_s: float
) -> None:
    """An hourly look, and a caller that asks for another one every minute: an hour stays an hour."""
    for minute in range(10):
        status = "down" if minute == 3 else "up"
        await health.record([look(first_s + minute * 60.0, status=status, span_s=HOUR_S)])
        await roll_up_all(health)
    found = await health.summary("billing", 0, math.inf)
    assert (found.up_ms, found.down_ms) == (8 * 60_000 + 3_600_000, 60_000)
    steps: tuple[Step, ...] = ("minute", "hour", "day")
    for step in steps:
        buckets = await health.rollups("billing", step, START, START + 2 * DAY_S)
        assert sum(one.rollup.up_ms for one in buckets) == found.up_ms
        assert sum(one.rollup.down_ms for one in buckets) == found.down_ms


async def test_a_late_look_takes_its_time_from_the_one_before_it(health: HealthRecords) -> None:
    await health.record([look(0.0, status="up", span_s=300.0), look(300.0, status="up", span_s=30.0)])
    await roll_up_all(health)
    await health.record([look(100.0, status="down", span_s=600.0)])
    await roll_up_all(health)
    found = await health.summary("billing", 0, math.inf)
    assert (found.up_ms, found.down_ms) == (100_000 + 30_000, 200_000)


async def test_rolling_up_goes_on_where_it_was(health: HealthRecords) -> None:
    """In steps of a bounded number of services, and of what is recorded since."""
    names = [f"service-{number:02}" for number in range(50)]
    for round_s in (0, 600, HOUR_S, DAY_S):
        await health.record([look(round_s, name) for name in names])
        assert await roll_up_all(health, START + round_s + 1) >= 3
        assert await roll_up_all(health, START + round_s + 1) == 1
    for name in names:
        assert (await health.summary(name, 0, math.inf)).count == 4


async def test_time_is_counted_once_before_and_after_a_roll_up(health: HealthRecords) -> None:
    """Looks overlap, one arrives late, and some are younger than what is rolled up: every answer stays the same."""
    await health.record([look(at_s, status="down", span_s=100.0) for at_s in (0, 10, 20, 30, 40)])
    await health.record([look(15, status="down", span_s=100.0), look(35, "young")])
    for until_s in (0.0, 15.0, 30.0, 99.0):
        assert await health.roll_up(START + until_s) is None
        found = await health.summary("billing", 0, math.inf)
        assert (found.down, found.down_ms) == (6, 140_000), until_s
        assert (await health.availability(["billing", "young"], START))["billing"].down_ms == 140_000
    assert (await health.summary("young", 0, math.inf)).count == 1


@pytest.mark.parametrize("others", [0, 11], ids=["most services", "few services"])
@pytest.mark.parametrize("first_s", [0.0, MINUTE_S - 5.0, HOUR_S - 5.0, DAY_S - 5.0])
async def test_two_processes_that_look_at_once_count_no_time_twice(
    health: HealthRecords, first_s: float, others: int
) -> None:
    """Each plans half a minute at the same service, across the end of a minute, an hour and a day."""
    await health.record([look(0.0, f"other-{number}") for number in range(others)])
    looks = [look(first_s + at_s, status=status, span_s=30.0) for at_s, status in ((0, "up"), (8, "down"), (9, "up"))]
    expected = [8_000, 1_000, 30_000]
    for rolled in range(len(looks) + 1):
        if rolled:
            await health.record(looks[:rolled])
            await roll_up_all(health)
        await health.record(looks)
        whole = await health.summary("billing", 0, math.inf)
        assert (whole.count, whole.up_ms, whole.down_ms) == (3, 38_000, 1_000)
        since_start = (await health.availability(["billing"], START))["billing"]
        assert (since_start.up_ms, since_start.down_ms, since_start.timed) == (38_000, 1_000, 3)
        for step, step_s in STEPS:
            buckets: dict[float, int] = {}
            for one, time_ms in zip(looks, expected, strict=True):
                bucket = START + (one.at - START) // step_s * step_s
                buckets[bucket] = buckets.get(bucket, 0) + time_ms
            found = await health.rollups("billing", step, START, START + 2 * DAY_S)
            assert {one.at: one.rollup.up_ms + one.rollup.down_ms for one in found} == buckets
        assert await health.forget("billing")


async def test_a_range_ends_before_the_look_that_cuts_its_last_one_short(health: HealthRecords) -> None:
    await health.record([look(50.0, span_s=HOUR_S), look(70.0, span_s=30.0)])
    for _ in range(2):
        assert (await health.summary("billing", START, START + MINUTE_S)).up_ms == 20_000
        assert [one.rollup.up_ms for one in await health.rollups("billing", "minute", START, START + MINUTE_S)] == [
            20_000
        ]
        await roll_up_all(health)


async def test_a_late_look_is_exact_before_it_is_rolled_up(health: HealthRecords) -> None:
    """It takes its time from the look before it, which is rolled up, and stands until the one after it."""
    await health.record([look(HOUR_S - 10, status="up", span_s=300.0), look(HOUR_S + 290, status="up", span_s=30.0)])
    await roll_up_all(health)
    await health.record([look(HOUR_S + 90, status="down", span_s=600.0)])
    for _ in range(2):
        found = await health.summary("billing", 0, math.inf)
        assert (found.up_ms, found.down_ms) == (100_000 + 30_000, 200_000)
        since_start = (await health.availability(["billing"], START))["billing"]
        assert (since_start.up_ms, since_start.down_ms) == (100_000 + 30_000, 200_000)
        await roll_up_all(health)


async def test_several_processes_roll_up_at_the_same_time(stage: Stage) -> None:
    """While looks are recorded, again and again, each is counted once."""
    stores = [stage.store]
    if stage.backend.url is not None:
        stores += [await stage.another_store() for _ in range(2)]
    names = [f"service-{number}" for number in range(30)]
    batches = [[look(at_s, name) for name in names] for at_s in range(0, 600, 30)]

    async def record() -> None:
        for before, batch in pairwise([batches[0], *batches]):
            await stores[0].health.record(batch)
            await stores[0].health.record(before)

    async def roll_up(health: HealthRecords) -> None:
        for _ in range(15):
            await roll_up_all(health)

    await asyncio.gather(record(), *(roll_up(store.health) for store in stores))
    for _ in range(2):
        for name in names:
            assert (await stage.store.health.summary(name, 0, math.inf)).count == len(batches)
            assert len(await stage.store.health.looks(name, 0, math.inf)) == len(batches)
        await roll_up_all(stage.store.health)


async def test_ranges_with_too_many_buckets_are_refused(health: HealthRecords) -> None:
    with pytest.raises(BadInput, match="ask for a larger step"):
        await health.rollups("billing", "minute", START, START + (BUCKET_LIMIT + 1) * MINUTE_S)
    with pytest.raises(BadInput, match="step must be one of minute, hour, day"):
        await health.rollups("billing", "week", START, START + 1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="must end after it begins"):
        await health.summary("billing", 1.0, 0.0)
