"""A process that is killed while it records loses nothing that was answered, and a repeated batch doubles nothing."""

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from everpoll.errors import StoreUnavailable
from everpoll.stores.sqlite import SqliteStore, health_upkeep
from stores.health_looks import DAY_S, HOUR_S, START, dependency, error, look, looks_every, record_all, roll_up_all
from stores.sqlite.processes import start

RECORDER = """
    from everpoll.stores.health import NewError, NewLook
    for number in range(100_000):
        batch = [
            NewLook(service=f"s{one}", at=1_900_022_400.0 + number * 30, status="up", span_s=30.0, latency_ms=1.0,
                errors=(NewError(dependency="db", error_message=str(number)),))
            for one in range(20)
        ]
        await store.health.record(batch)
        if number % 7 == 0:
            await store.health.roll_up(batch[0].at - 60)
        say(number)
"""


@pytest.mark.parametrize("answers", [1, 15, 60])
async def test_killed_at_any_moment(url: str, answers: int) -> None:
    with start(url, RECORDER) as process:
        assert process.stdout is not None
        said = [process.stdout.readline()]
        while int(said[-1]) < answers:
            said.append(process.stdout.readline())
        process.kill()
        said += process.stdout.readlines()
    last = max(int(line) for line in said if line.endswith("\n"))
    store = SqliteStore(url)
    await store.open()
    health = store.health
    for number in range(last + 2):
        await health.record(
            [look(number * 30.0, f"s{one}", latency_ms=1.0, errors=(error("db", str(number)),)) for one in range(20)]
        )
    counts = {(await health.summary(f"s{one}", 0, math.inf)).count for one in range(20)}
    await roll_up_all(health)
    again = {(await health.summary(f"s{one}", 0, math.inf)).count for one in range(20)}
    looks = {len(await health.looks(f"s{one}", 0, math.inf, 100_000)) for one in range(20)}
    entries = await health.errors("s7", "db", 100_000)
    await store.close()
    assert counts == again == looks
    # What was not answered may have been committed, or not: one batch at most, and it was written again here.
    assert counts <= {last + 2, last + 3}
    assert len(counts) == 1
    assert [one.error_message for one in entries][-1] == "0"
    assert len({one.at for one in entries}) == len(entries) == counts.pop()


async def test_a_batch_that_does_not_get_through_is_written_as_a_whole_later(store: SqliteStore, path: Path) -> None:
    """Another program keeps the file locked; nothing of the batch is there until it is repeated."""
    await store.health.record([look(0)])
    batch = [look(30, errors=(error(),), dependencies=(dependency(),)), look(30, "other")]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.health.record(batch)
        assert [one.at for one in await store.health.looks("billing", 0, math.inf)] == [START]
        other.execute("rollback")
    for _ in range(2):
        await store.health.record(batch)
        assert len(await store.health.looks("billing", 0, math.inf)) == 2
        assert len(await store.health.looks("other", 0, math.inf)) == 1
        assert len(await store.health.errors("billing", "db")) == 1


async def test_a_long_backlog_is_rolled_up_in_parts(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first; late looks among them are counted, too, and nothing is counted twice in between."""
    monkeypatch.setattr(health_upkeep, "STEP_LOOKS", 40)
    looks = looks_every(60, 300)
    await record_all(store.health, looks[::2])
    await record_all(store.health, looks[1::2])
    after, calls = await store.health.roll_up(START + DAY_S), 1
    while after is not None:
        assert (await store.health.summary("billing", 0, math.inf)).count == 300
        assert (await store.health.availability(["billing"], START))["billing"].timed == 300
        assert len(await store.health.looks("billing", 0, math.inf)) == 300
        after, calls = await store.health.roll_up(START + DAY_S, after), calls + 1
    assert calls >= 7
    assert (await store.health.availability(["billing"], START))["billing"].timed == 300


async def test_a_late_look_with_the_newest_row_is_counted_once(store: SqliteStore) -> None:
    await store.health.record([look(0), look(60), look(120)])
    await store.health.record([look(30)])
    for _ in range(2):
        await roll_up_all(store.health)
        assert (await store.health.availability(["billing"], START))["billing"].timed == 4
    await store.health.record([look(150)])
    assert (await store.health.availability(["billing"], START))["billing"].timed == 5
    assert len(await store.health.looks("billing", 0, math.inf)) == 5


async def test_rolled_up_rows_are_deleted_and_numbers_not_reused(store: SqliteStore) -> None:
    """But for the newest: the next look gets a higher number than every look before."""
    numbers = "select max(id), count(*) from everpoll_health_looks"
    await store.health.record([*looks_every(60, 50), *looks_every(60, 50, service="gone")])
    await roll_up_all(store.health)
    assert await store._read(lambda con: con.execute(numbers).fetchone()) == (100, 1)
    assert await store.health.forget("gone")
    await store.health.record([look(HOUR_S)])
    assert await store._read(lambda con: con.execute(numbers).fetchone()) == (101, 2)
    await store.health.record([look(HOUR_S, "gone")])
    await roll_up_all(store.health)
    assert await store._read(lambda con: con.execute(numbers).fetchone()) == (102, 1)
