"""Dependencies are known by service and name and keep what the latest look said; errors and latencies are a history."""

import math
from typing import Any

import msgspec
import pytest

from everpoll.errors import BadInput
from everpoll.stores.health import (
    WINDOW_BYTES,
    DependencyInfo,
    Edge,
    ErrorEntry,
    HealthRecords,
    LatencyPoint,
    MaintenanceWindow,
    NewError,
)
from stores.health_looks import DAY_S, HOUR_S, START, dependency, error, look, looks_every, record_all, roll_up_all
from stores.stage import Stage


@pytest.fixture
def health(stage: Stage) -> HealthRecords:
    return stage.store.health


FULL = dependency(
    "orders/db",
    10,
    status="down",
    vanished=True,
    skipped=True,
    latency_ms=12.345,
    type="database",
    impact="no orders",
    description="where orders are",
    contact={"team": "ops", "mail": ["a@example.org"]},
    check_details={"query": "select 1", "deep": {"n": 1.5}},
    error={"code": 7, "text": "a\0b"},
    error_message="refused",
)


async def test_every_field_comes_back(health: HealthRecords) -> None:
    await health.record([look(10, dependencies=(FULL, dependency("cache", 10)))])
    cache, full = await health.dependencies("billing")
    shown = msgspec.structs.asdict(full)
    assert shown == {**msgspec.structs.asdict(FULL), "canonical": "orders/db"}
    assert cache == DependencyInfo(
        name="cache",
        canonical="cache",
        status="up",
        changed_at=START + 10,
        seen_at=START + 10,
        vanished=False,
        skipped=False,
        latency_ms=None,
        type="other",
        impact=None,
        description=None,
        contact=None,
        check_details=None,
        error=None,
        error_message=None,
    )
    assert await health.dependencies("unheard of") == []


async def test_an_earlier_look_changes_nothing(health: HealthRecords) -> None:
    """Whether it comes late, or again."""
    first = look(10, dependencies=(dependency("db", 10, status="down"),))
    second = look(20, dependencies=(dependency("db", 20, status="up"), dependency("queue", 20)))
    await health.record([second])
    for batch in ([first], [second, first], [first, second]):
        await health.record(batch)
        assert [(one.name, one.status) for one in await health.dependencies("billing")] == [
            ("db", "up"),
            ("queue", "up"),
        ]
    await health.record([look(30, dependencies=(dependency("db", 30, status="degraded"),))])
    assert [one.status for one in await health.dependencies("billing")] == ["degraded", "up"]


async def test_in_one_batch_the_later_look_counts(health: HealthRecords) -> None:
    await health.record(
        [look(20, dependencies=(dependency(status="up"),)), look(10, dependencies=(dependency(status="down"),))]
    )
    assert [one.status for one in await health.dependencies("billing")] == ["up"]


async def test_an_alias_holds_at_once_for_everything_recorded(health: HealthRecords) -> None:
    await health.record([look(1, dependencies=(dependency("pg-main"), dependency("redis")))])
    await health.set_alias("pg-main", "Postgres")
    await health.set_alias("pg-main", "PostgreSQL")
    await health.set_alias("kafka-1", "Kafka")
    assert await health.aliases() == {"kafka-1": "Kafka", "pg-main": "PostgreSQL"}
    assert [one.canonical for one in await health.dependencies("billing")] == ["PostgreSQL", "redis"]
    assert [one.canonical for one in (await health.edges()).edges] == ["PostgreSQL", "redis"]
    assert await health.delete_alias("pg-main") is True
    assert await health.delete_alias("pg-main") is False
    assert [one.canonical for one in await health.dependencies("billing")] == ["pg-main", "redis"]
    with pytest.raises(BadInput, match="alias"):
        await health.set_alias("", "x")


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_latencies_follow_every_look_without_writing_the_dependency_again(
    health: HealthRecords, is_rolled_up: bool
) -> None:
    await health.record([look(0, dependencies=(dependency("db", latency_ms=9.0), dependency("cache", latency_ms=8.0)))])
    batch = [
        look(30, latencies={"db": 1.5, "cache": 0.25}),
        look(60),
        look(90, latencies={"db": 2.5, "cache": 0.0, "odd": math.nan}),
        look(HOUR_S + 5, latencies={"db": 3.5, "new\0": 1.0}),
        look(HOUR_S + 6, latencies={"db": -1.0}),
    ]
    for _ in range(2):
        await health.record(batch)
        if is_rolled_up:
            await roll_up_all(health)
    found = await health.latencies("billing", "db", 0, START + DAY_S)
    assert found == [
        LatencyPoint(START + HOUR_S + 5, 3.5),
        LatencyPoint(START + 90, 2.5),
        LatencyPoint(START + 30, 1.5),
    ]
    assert await health.latencies("billing", "db", START + 30, START + 90) == found[2:]
    assert await health.latencies("billing", "db", 0, START + DAY_S, 2) == found[:2]
    assert await health.latencies("billing", "cache", 0, math.inf) == [LatencyPoint(START + 30, 0.25)]
    assert [one.latency_ms for one in await health.latencies("billing", "new\0", 0, math.inf)] == [1.0]
    assert await health.latencies("billing", "odd", 0, math.inf) == []
    shown = {one.name: one.latency_ms for one in await health.dependencies("billing")}
    assert shown == {"db": 3.5, "cache": None}
    await health.record([look(HOUR_S + 9, dependencies=(dependency("db", latency_ms=4.5),))])
    assert {one.name: one.latency_ms for one in await health.dependencies("billing")}["db"] == 4.5


async def test_latencies_of_a_late_look_find_their_place(health: HealthRecords) -> None:
    await health.record([look(number * 60, latencies={"db": number + 1.0}) for number in (0, 1, 3, 5)])
    await roll_up_all(health)
    await health.record([look(240, latencies={"db": 5.0}), look(120, latencies={"db": 3.0, "cache": 7.0})])
    for _ in range(2):
        found = await health.latencies("billing", "db", 0, math.inf)
        assert [one.latency_ms for one in found] == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
        assert [one.latency_ms for one in await health.latencies("billing", "cache", 0, math.inf)] == [7.0]
        assert [one.latency_ms for one in await health.latencies("billing", "db", 0, START + 200, 2)] == [4.0, 3.0]
        await roll_up_all(health)


async def test_latencies_of_a_late_look_are_not_the_latest(health: HealthRecords) -> None:
    """Neither before it is rolled up nor after."""
    await health.record([look(0, dependencies=(dependency(),)), look(60, latencies={"db": 2.0})])
    await roll_up_all(health)
    await health.record([look(30, latencies={"db": 1.0})])
    for _ in range(2):
        assert [one.latency_ms for one in await health.dependencies("billing")] == [2.0]
        await roll_up_all(health)


async def test_the_error_history_is_read_newest_first(health: HealthRecords) -> None:
    batch = [
        look(0, errors=(error("db", "refused", error={"code": 1}), error("cache", "slow"))),
        look(30, errors=(NewError(dependency="db"),)),
        look(60, errors=(error("db", "é" * 3_000, error={"unhealthy": True}),)),
    ]
    for _ in range(3):
        await health.record(batch)
    assert await health.errors("billing", "db") == [
        ErrorEntry(START + 60, {"unhealthy": True}, "é" * 2_000),
        ErrorEntry(START + 30, None, None),
        ErrorEntry(START, {"code": 1}, "refused"),
    ]
    assert len(await health.errors("billing", "db", 2)) == 2
    assert [one.error_message for one in await health.errors("billing", "cache")] == ["slow"]
    assert await health.errors("other", "db") == []


async def test_edges_come_in_pages(health: HealthRecords) -> None:
    names = ["a", "b", "c"]
    await health.record(
        [look(1, name, dependencies=tuple(dependency(f"d{number}") for number in range(5))) for name in names]
    )
    await health.record([look(2, "b", dependencies=(dependency("d2", 2, status="down", vanished=True),))])
    found: list[Edge] = []
    page = await health.edges(limit=4)
    while page.after is not None:
        found += page.edges
        page = await health.edges(page.after, limit=4)
    found += page.edges
    assert [(one.service, one.name) for one in found] == [(name, f"d{n}") for name in names for n in range(5)]
    assert found[7] == Edge("b", "d2", "d2", "down", True)
    assert (await health.edges(("c", "d4"))).edges == ()


ODD: list[tuple[Any, Any]] = [
    ({"big": 2**70}, dict),
    ({"x": "\ud800"}, dict),
    ({"text": "y" * 70_000}, {"too_large": "70,011 bytes were dropped"}),
    ([1, None, {"a": [True]}], [1, None, {"a": [True]}]),
    (False, False),
    ("", ""),
]


@pytest.mark.parametrize(("odd", "kept"), ODD, ids=lambda one: str(one)[:20])
async def test_whatever_a_remote_gives_as_its_error(health: HealthRecords, odd: Any, kept: Any) -> None:
    """It is kept, or replaced by a note, and fails nothing."""
    long = "n" * 3_000
    await health.record([look(1, errors=(error(long, error=odd),), dependencies=(dependency(long, error=odd),))])
    [entry] = await health.errors("billing", long)
    [shown] = await health.dependencies("billing")
    assert entry.error == shown.error
    assert shown.name == long[:250]
    assert isinstance(entry.error, kept) if kept is dict else entry.error == kept


async def test_maintenance_windows_are_documents(health: HealthRecords) -> None:
    window = MaintenanceWindow("w1", {"services": ["billing"], "from": "2030-01-01", "note": "a\0b"})
    await health.set_window(MaintenanceWindow("w2", [1]))
    await health.set_window(MaintenanceWindow("w1", {}))
    await health.set_window(window)
    assert await health.windows() == [window, MaintenanceWindow("w2", [1])]
    assert await health.delete_window("w2") is True
    assert await health.delete_window("w2") is False
    assert await health.windows() == [window]
    with pytest.raises(BadInput, match="more than 64,000"):
        await health.set_window(MaintenanceWindow("w3", "x" * WINDOW_BYTES))
    with pytest.raises(BadInput, match="must have a name"):
        await health.set_window(MaintenanceWindow("", {}))


async def test_a_forgotten_service_leaves_nothing_behind(health: HealthRecords) -> None:
    def about(name: str) -> list[Any]:
        changes = {"dependencies": (dependency(),), "errors": (error(),), "latencies": {"db": 1.0}}
        return [*looks_every(1_800, 100, service=name), look(5, name, **changes)]

    await record_all(health, about("gone"))
    await record_all(health, about("kept"))
    await roll_up_all(health)
    await health.record([look(3 * DAY_S, "gone"), look(3 * DAY_S, "kept")])
    kept = await health.summary("kept", 0, math.inf)
    assert await health.forget("gone") is True
    assert await health.forget("gone") is False
    assert await health.looks("gone", 0, math.inf) == []
    assert await health.last_looks(["gone"], 10) == {}
    assert await health.dependencies("gone") == []
    assert await health.errors("gone", "db") == []
    assert (await health.summary("gone", 0, math.inf)).count == 0
    assert await health.rollups("gone", "hour", START, START + DAY_S) == []
    assert set(await health.availability(["gone", "kept"], START)) == {"kept"}
    assert {one.service for one in (await health.edges()).edges} == {"kept"}
    await roll_up_all(health)
    assert await health.summary("kept", 0, math.inf) == kept
    await health.record([look(1, "gone")])
    assert [one.at for one in await health.looks("gone", 0, math.inf)] == [START + 1]
    assert (await health.summary("gone", 0, math.inf)).count == 1
