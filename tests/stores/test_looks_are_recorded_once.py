"""What a look found is read back at once, and writing it again changes nothing, however much later that is."""

import math
from typing import Any

import pytest

from everpoll.errors import BadInput
from everpoll.stores.health import BATCH_LIMIT, RECENT_LIMIT, HealthRecords, Look, LookPoint, NewLook
from stores.health_looks import DAY_S, HOUR_S, START, look, looks_every, record_all, roll_up_all
from stores.stage import Stage


@pytest.fixture
def health(stage: Stage) -> HealthRecords:
    return stage.store.health


async def everything(health: HealthRecords, service: str = "billing") -> list[Look]:
    return await health.looks(service, 0, START + 100 * DAY_S, 100_000)


def read_as(one: NewLook) -> Look:
    return Look(
        at=one.at,
        status=one.status,
        span_s=one.span_s,
        latency_ms=one.latency_ms,
        error=one.error,
        http_status=one.http_status,
    )


LOOKS = [
    look(0),
    look(30, latency_ms=0.001, status="degraded"),
    look(60.5, latency_ms=None, status="down", error="connection refused", http_status=None, span_s=300.0),
    look(400, latency_ms=1234.567, status="unknown", http_status=503, error="unreadable: ✗"),
    look(HOUR_S, latency_ms=3.0),
    look(3 * HOUR_S + 1),
]


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_every_field_comes_back_newest_first(health: HealthRecords, is_rolled_up: bool) -> None:
    await health.record(LOOKS)
    if is_rolled_up:
        await roll_up_all(health)
    assert await everything(health) == [read_as(one) for one in reversed(LOOKS)]


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_ranges_are_half_open_and_limits_take_the_newest(health: HealthRecords, is_rolled_up: bool) -> None:
    looks = looks_every(600, 40)
    await health.record(looks)
    if is_rolled_up:
        await roll_up_all(health)
    found = await health.looks("billing", looks[3].at, looks[31].at)
    assert [one.at for one in found] == [one.at for one in reversed(looks[3:31])]
    for limit in (1, 2, 7, 27, 28, 29):
        some = await health.looks("billing", looks[3].at, looks[31].at, limit)
        assert some == found[:limit]
    assert await health.looks("billing", looks[-1].at + 0.001, math.inf) == []
    assert await health.looks("billing", -math.inf, looks[0].at) == []
    assert len(await health.looks("billing", -math.inf, math.inf)) == 40


async def test_the_same_batch_again_changes_nothing(health: HealthRecords) -> None:
    """At once, after a part of it was rolled up, and after all of it was."""
    await health.record(LOOKS)
    before = await everything(health)
    await health.record(LOOKS)
    assert await everything(health) == before
    for until in (START + 60, START + DAY_S):
        await roll_up_all(health, until)
        summary = await health.summary("billing", 0, START + DAY_S)
        await health.record(LOOKS)
        assert await everything(health) == before
        assert await health.summary("billing", 0, START + DAY_S) == summary
        assert summary.count == len(LOOKS)


async def test_of_two_looks_at_the_same_millisecond_the_first_counts(health: HealthRecords) -> None:
    await health.record([look(1, status="up"), look(1.0001, status="down")])
    await health.record([look(1, status="degraded")])
    assert [one.status for one in await everything(health)] == ["up"]


async def test_a_late_look_finds_its_place(health: HealthRecords) -> None:
    """Another worker has looked since: before, between and after what is rolled up, and what is not."""
    order = [50, 20, 40, 10, 30]
    for at_s in order:
        await health.record([look(at_s)])
    await roll_up_all(health)
    late = [5, 25, 55, 45, 15, 35, 60, 58]
    for at_s in late:
        await health.record([look(at_s), look(20)])
        assert [one.at for one in await everything(health)] == sorted(
            [START + one for one in [*order, *late[: late.index(at_s) + 1]]], reverse=True
        )
    recorded = await everything(health)
    points = (await health.last_looks(["billing"], RECENT_LIMIT))["billing"]
    assert [one.at for one in points] == [one.at for one in recorded]
    await roll_up_all(health)
    assert await everything(health) == recorded
    assert (await health.summary("billing", 0, START + DAY_S)).count == len(order) + len(late)


async def test_services_are_kept_apart(health: HealthRecords) -> None:
    await health.record([look(1, "a"), look(1, "b", status="down"), look(2, "a")])
    assert [one.status for one in await everything(health, "a")] == ["up", "up"]
    assert [one.status for one in await everything(health, "b")] == ["down"]
    assert await everything(health, "c") == []


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_the_last_looks_at_many_services(health: HealthRecords, is_rolled_up: bool) -> None:
    """A few of each, in one call; services that are not known are left out."""
    names = [f"service-{number}" for number in range(30)]
    for number, name in enumerate(names):
        await health.record(looks_every(60, number + 1, service=name))
    if is_rolled_up:
        await roll_up_all(health)
        await health.record([look(DAY_S, names[3]), look(DAY_S + 1, names[3], latency_ms=None)])
    found = await health.last_looks([*names, "unheard of"], 10)
    assert set(found) == set(names)
    for number, name in enumerate(names):
        if is_rolled_up and number == 3:
            assert found[name][0] == LookPoint(START + DAY_S + 1, "up", None)
            assert len(found[name]) == 6
        else:
            expected = [START + 60.0 * one for one in range(number + 1)][-10:]
            assert [one.at for one in found[name]] == expected[::-1]
    assert await health.last_looks([], 5) == {}


async def test_the_last_looks_reach_back_over_roll_ups(health: HealthRecords) -> None:
    for hour in range(6):
        await health.record(looks_every(120, 30, first_s=hour * HOUR_S))
        await roll_up_all(health)
    await health.record(looks_every(120, 5, first_s=6 * HOUR_S))
    found = (await health.last_looks(["billing"], RECENT_LIMIT))["billing"]
    assert [one.at for one in found] == [START + 120.0 * number for number in range(184, 184 - RECENT_LIMIT, -1)]


async def test_many_looks_at_many_services(health: HealthRecords) -> None:
    looks = [look(at_s, f"service-{number}", span_s=60.0) for at_s in range(0, 1200, 60) for number in range(60)]
    await record_all(health, looks)
    await record_all(health, looks[::-1])
    assert await roll_up_all(health) > 1
    await record_all(health, looks)
    for number in (0, 31, 59):
        found = await everything(health, f"service-{number}")
        assert [one.at for one in found] == [START + at_s for at_s in range(1140, -60, -60)]


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"service": ""}, "must have a name"),
    ({"service": "a\0b"}, "without NUL"),
    ({"service": "\ud800"}, "without NUL"),
    ({"service": "é" * 600}, "1,000 bytes"),
    ({"status": "fine"}, "status must be one of"),
    ({"at": math.nan}, "seconds since the epoch"),
    ({"at": -1.0}, "seconds since the epoch"),
    ({"at": START * 1_000}, "seconds since the epoch"),
    ({"span_s": 0.0}, "above 0"),
    ({"span_s": math.inf}, "above 0"),
]


@pytest.mark.parametrize(("unfit", "said"), UNFIT, ids=lambda one: str(one)[:20])
async def test_what_a_caller_got_wrong_is_refused_as_a_whole(
    health: HealthRecords, unfit: dict[str, Any], said: str
) -> None:
    wrong = NewLook(**{"service": "billing", "at": START, "status": "up", "span_s": 30.0, **unfit})
    with pytest.raises(BadInput, match=said):
        await health.record([look(1), wrong])
    assert await everything(health) == []


async def test_calls_that_cannot_be_answered_are_refused(health: HealthRecords) -> None:
    with pytest.raises(BadInput, match="more than 1,000"):
        await health.record([look(number) for number in range(BATCH_LIMIT + 1)])
    with pytest.raises(BadInput, match="must end after it begins"):
        await health.looks("billing", 5.0, 4.0)
    with pytest.raises(BadInput, match="limit must be"):
        await health.looks("billing", 0, 1, 0)
    with pytest.raises(BadInput, match="n must be between 1 and 60"):
        await health.last_looks(["billing"], RECENT_LIMIT + 1)
    with pytest.raises(BadInput, match="without NUL"):
        await health.last_looks(["a\0"], 1)
    await health.record([])


async def test_whatever_a_remote_says_is_kept_readable(health: HealthRecords) -> None:
    """It is cut and escaped, and never makes the batch fail that other services share."""
    await health.record(
        [
            look(1, error="a\0b\ud800c", latency_ms=math.nan, http_status=70_000),
            look(2, error="é" * 5_000, latency_ms=-1.0, http_status=-5),
            look(3, latency_ms=1e12, span_s=1e12),
            look(3, "other"),
        ]
    )
    huge, long, odd = await everything(health)
    assert odd.error == "a\\u0000b\\ud800c"
    assert (odd.latency_ms, odd.http_status) == (None, None)
    assert long.error == "é" * 2_000
    assert (long.latency_ms, long.http_status) == (None, None)
    assert huge.latency_ms == pytest.approx(2**31 / 1_000)
    assert huge.span_s == pytest.approx(2**31 / 1_000)
    await roll_up_all(health)
    assert await everything(health) == [huge, long, odd]
    assert len(await everything(health, "other")) == 1
