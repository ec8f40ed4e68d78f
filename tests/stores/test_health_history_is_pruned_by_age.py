"""Each kind of record goes at its age, in bounded portions, and what is gone is neither counted twice nor missed."""

import math

import pytest

from everpoll.policy import Rollup
from everpoll.stores.health import HealthRecords, Retention, Step
from stores.health_looks import DAY_S, HOUR_S, START, dependency, error, look, looks_every, record_all, roll_up_all
from stores.stage import Stage

KEPT = Retention(looks_s=DAY_S, minutes_s=2 * DAY_S, hours_s=4 * DAY_S, days_s=8 * DAY_S, errors_s=3 * DAY_S)


@pytest.fixture
def health(stage: Stage) -> HealthRecords:
    return stage.store.health


async def prune_all(health: HealthRecords, now: float, kept: Retention = KEPT) -> None:
    while await health.prune(now, kept):
        pass


def counted(rollup: Rollup) -> int:
    return rollup.count


async def test_each_kind_goes_at_its_age(health: HealthRecords) -> None:
    """Ten days, a look every half hour."""
    await record_all(health, looks_every(1_800, 480))
    await roll_up_all(health)
    now = START + 10 * DAY_S
    await prune_all(health, now)
    looks = await health.looks("billing", 0, math.inf, 1_000)
    assert [one.at for one in looks] == [now - 1_800 * number for number in range(1, 49)]
    ages_s: list[tuple[Step, float]] = [("minute", 2 * DAY_S), ("hour", 4 * DAY_S), ("day", 8 * DAY_S)]
    for step, age_s in ages_s:
        assert (await health.rollups("billing", step, now - age_s - 2 * DAY_S, now))[0].at == now - age_s
    assert counted(await health.summary("billing", 0, math.inf)) == 8 * 48
    assert await health.prune(now, KEPT) is False


async def test_ranges_are_exact_as_far_as_the_finest_kept(health: HealthRecords) -> None:
    """To the minute, then to the hour, then to the day: what is cut counts whole."""
    await record_all(health, looks_every(600, 1_440))
    await roll_up_all(health)
    now = START + 10 * DAY_S
    await prune_all(health, now)

    async def count(from_s: float, to_s: float) -> int:
        return counted(await health.summary("billing", now + from_s, now + to_s))

    assert await count(-30 * 60, -20 * 60) == 1
    assert await count(-3 * DAY_S + 600, -3 * DAY_S + 1_200) == 6
    assert await count(-3 * DAY_S + 600, -2 * DAY_S + 1_200) == 24 * 6 + 2
    assert await count(-5 * DAY_S + HOUR_S, -5 * DAY_S + 2 * HOUR_S) == 144
    assert await count(-5 * DAY_S + HOUR_S, -4 * DAY_S + HOUR_S) == 144 + 6
    assert await count(-9 * DAY_S, -8.5 * DAY_S) == 0
    found = await health.availability(["billing"], now - 5 * DAY_S + 5 * HOUR_S)
    assert found["billing"].timed == 5 * 144


async def test_a_batch_that_comes_again_after_its_looks_are_gone_changes_nothing(health: HealthRecords) -> None:
    first = look(0, dependencies=(dependency(vanished=True),), errors=(error(),))
    batch = [first, *looks_every(1_800, 200, first_s=60)]
    await health.record(batch)
    await roll_up_all(health)
    await prune_all(health, START + 5 * DAY_S)
    before = await health.summary("billing", 0, math.inf)
    looks = await health.looks("billing", 0, math.inf, 1_000)
    assert (before.count, len(looks)) == (201, 8)
    await health.record(batch)
    for _ in range(2):
        assert await health.summary("billing", 0, math.inf) == before
        assert await health.dependencies("billing") == []
        assert await health.errors("billing", "db") == []
        assert await health.looks("billing", 0, math.inf, 1_000) == looks
        await roll_up_all(health)


async def test_what_is_not_rolled_up_is_not_pruned(health: HealthRecords) -> None:
    await health.record([look(0)])
    await prune_all(health, START + 100 * DAY_S)
    assert len(await health.looks("billing", 0, math.inf)) == 1
    await roll_up_all(health)
    assert counted(await health.summary("billing", 0, math.inf)) == 1


async def test_errors_and_vanished_dependencies_go_together(health: HealthRecords) -> None:
    for number in range(6):
        at_s = number * DAY_S
        gone = dependency(f"d{number}", at_s, vanished=number % 2 == 0)
        await health.record([look(at_s, errors=(error("db", f"m{number}"),), dependencies=(gone,))])
    await roll_up_all(health)
    await prune_all(health, START + 6 * DAY_S)
    assert [one.error_message for one in await health.errors("billing", "db")] == ["m5", "m4", "m3"]
    assert [one.name for one in await health.dependencies("billing")] == ["d1", "d3", "d4", "d5"]


async def test_a_clock_that_was_years_ahead_does_no_harm_to_what_follows(health: HealthRecords) -> None:
    await health.record([look(0)])
    await roll_up_all(health)
    await prune_all(health, START + 3_000 * DAY_S)
    later = [look(HOUR_S + 60 * number, errors=(error("db", str(number)),)) for number in range(3)]
    await health.record(later)
    await roll_up_all(health)
    assert len(await health.looks("billing", 0, math.inf)) == 3
    assert counted(await health.summary("billing", START + HOUR_S + 60, START + HOUR_S + 120)) == 1
    assert len(await health.errors("billing", "db")) == 3


async def test_portions_are_bounded(stage: Stage, health: HealthRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sqlite", "postgres"):
        monkeypatch.setattr(f"everpoll.stores.{name}.health_upkeep.STEP_ROWS", 10)
    await record_all(health, looks_every(HOUR_S, 50))
    await roll_up_all(health)
    calls = 1
    while await health.prune(START + 100 * DAY_S, KEPT):
        calls += 1
    assert calls == (1 if stage.backend.name == "memory" else 6)
    assert counted(await health.summary("billing", 0, math.inf)) == 0
