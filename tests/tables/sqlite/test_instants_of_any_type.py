"""Whatever the time columns are declared as: claims, fences, due times and rescue work, and the user can read them."""

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from everpoll.errors import TableUnfit
from everpoll.tables.sqlite.instants import Kind, Starts, kind_of, later_us, read_us, stored
from tables.sqlite_stage import SqliteStage
from tables.stages import keys

DECLARED = [
    ("text", Kind.TEXT),
    ("datetime", Kind.TEXT),
    ("TIMESTAMP", Kind.TEXT),
    ("varchar(40)", Kind.TEXT),
    ("", Kind.TEXT),
    ("real", Kind.REAL),
    ("DOUBLE PRECISION", Kind.REAL),
    ("numeric", Kind.REAL),
    ("integer", Kind.WHOLE),
    ("BIGINT", Kind.WHOLE),
]
TABLE = """create table jobs (id integer primary key, status text, created_at {0}, worker_id text, started_at {0},
    finished_at {0}, error text, last_heartbeat {0}, retry_count integer not null default 0,
    priority integer not null default 0, due_at {0}, version integer not null default 0, updated_at {0}, payload text,
    report text) {1}"""
INSTANTS = ("started_at", "finished_at", "last_heartbeat", "due_at", "updated_at")


@pytest.mark.parametrize(("declared", "kind"), DECLARED)
def test_the_declared_type_says_how_instants_are_written(declared: str, kind: Kind) -> None:
    assert kind_of(declared) is kind


@pytest.mark.parametrize("declared", [one for one, _ in DECLARED])
async def test_a_row_lives_its_whole_life(sqlite_stage: SqliteStage, declared: str) -> None:
    await sqlite_stage.execute(TABLE.format(declared, ""))
    await _lives_its_whole_life(sqlite_stage)


@pytest.mark.parametrize("declared", ["text", "real", "integer", "int", "any"])
async def test_in_a_strict_table_too(sqlite_stage: SqliteStage, declared: str) -> None:
    await sqlite_stage.execute(TABLE.format(declared, "strict"))
    await _lives_its_whole_life(sqlite_stage)


async def _lives_its_whole_life(stage: SqliteStage) -> None:
    """Claimed, failed, waiting, due, lost, rescued, done; every write is by its fence."""
    await stage.insert({"id": 1, "status": "queued"})
    async with stage.claimer(stage.mapping(guard="timestamp", results=())) as worker:
        first = await worker.take_one()
        assert await worker.retry(first, delay_s=3600) == set()
        looked = await worker.look()
        assert looked.leases == []
        assert looked.next_due_s == pytest.approx(3600, abs=30)
        await stage.age(3601, "due_at")
        second = await worker.take_one()
        assert second.attempt == 2
        assert (await worker.beat(second)).canceled == ()
        assert await worker.end(first) == {first.id}
        await stage.age(302, "last_heartbeat")
        assert (await worker.beat()).rescued == 1
        assert (await worker.beat(second)).canceled == (second.id,)
        third = await worker.take_one()
        assert third.attempt == 3
        assert await worker.end(second) == {second.id}
        assert (await worker.beat(third)).rescued == 0
        assert await worker.end(third) == set()
    [row] = await stage.rows()
    assert (row["status"], row["retry_count"]) == ("completed", 2)
    now = datetime.now(UTC)
    for column in INSTANTS:
        assert abs(_instant(row[column]) - now) < timedelta(hours=2), column


def _instant(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)


async def test_within_one_second_a_row_that_was_taken_back_has_another_fence(sqlite_stage: SqliteStage) -> None:
    """Whole seconds cannot tell two claims apart; the worker's name does."""
    await sqlite_stage.execute(TABLE.format("integer", ""))
    await sqlite_stage.insert({"id": 1, "status": "queued"})
    async with sqlite_stage.claimer(sqlite_stage.mapping(results=())) as worker:
        taken = []
        for _ in range(5):
            taken.append(await worker.take_one())
            await sqlite_stage.change(1, status="queued")
        last = await worker.take_one()
        assert await worker.end(*taken) == {one.id for one in taken}
        row = await sqlite_stage.one(1)
        assert row["status"] == "running"
        assert row["worker_id"].startswith("worker-1:")
        assert await worker.end(last) == set()


async def test_claims_in_whole_seconds_are_shown_as_those_of_one_worker(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute(TABLE.format("integer", ""))
    await sqlite_stage.queue(1, 2)
    async with sqlite_stage.claimer() as worker:
        await worker.take_one()
        await worker.take_one()
        found = await worker.source.workers()
        state = await worker.source.row_state("1")
    assert [(one.label, one.running) for one in found] == [("worker-1", 2)]
    assert state is not None
    assert state.worker == "worker-1"


def test_no_two_claims_of_a_process_start_at_the_same_time() -> None:
    starts = Starts()
    given = [starts.next_us() for _ in range(10_000)]
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("kind", list(Kind))
def test_what_is_stored_is_read_again(kind: Kind) -> None:
    instant_us = 1_738_315_800_123_456
    assert read_us(stored(kind, instant_us)) == (instant_us if kind is not Kind.WHOLE else 1_738_315_800_000_000)
    assert read_us(stored(kind, later_us(instant_us, 1e300))) is not None


def test_a_due_time_in_whole_seconds_is_never_early() -> None:
    assert stored(Kind.WHOLE, 1_000_001, up=True) == 2
    assert stored(Kind.WHOLE, 1_000_000, up=True) == 1


def test_texts_compare_with_those_of_the_database_itself() -> None:
    with closing(sqlite3.connect(":memory:")) as con:
        [(plain,)] = con.execute("select datetime('2025-01-31 09:30:00')")
    assert stored(Kind.TEXT, 1_738_315_799_999_999) < plain < str(stored(Kind.TEXT, 1_738_315_800_000_000))


@pytest.mark.parametrize("nonsense", ["soon", "", None, b"x", float("nan")])
def test_what_is_no_instant_is_none(nonsense: Any) -> None:
    assert read_us(nonsense) is None


@pytest.mark.parametrize(
    "write",
    [
        lambda instant: instant.strftime("%Y-%m-%d %H:%M:%S"),
        lambda instant: instant.strftime("%Y-%m-%dT%H:%M:%S"),
        lambda instant: instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        lambda instant: instant.isoformat(),
    ],
)
async def test_due_times_as_other_programs_write_them(sqlite_stage: SqliteStage, write: Any) -> None:
    await sqlite_stage.create()
    now = datetime.now(UTC)
    for number, due in enumerate((timedelta(days=-1), timedelta(seconds=-2), timedelta(seconds=90), timedelta(days=1))):
        await sqlite_stage.queue(number, due_at=write(now + due))
    async with sqlite_stage.claimer() as worker:
        assert keys(await worker.take()) == [0, 1]
        next_due_s = (await worker.look()).next_due_s
    assert next_due_s is not None
    assert 30 < next_due_s < 91


async def test_a_due_time_that_is_not_utc_is_no_reason_to_hurry(sqlite_stage: SqliteStage) -> None:
    """It is compared as the text it is; the worker does not look twenty times a second until that has come."""
    await sqlite_stage.create()
    elsewhere = datetime.now(UTC).astimezone(timezone(timedelta(hours=2)))
    await sqlite_stage.queue(1, due_at=elsewhere.strftime("%Y-%m-%d %H:%M:%S+02:00"))
    async with sqlite_stage.claimer() as worker:
        looked = await worker.look()
    assert (looked.leases, looked.next_due_s) == ([], None)


async def test_a_column_that_cannot_hold_an_instant_is_refused(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute(TABLE.format("blob", ""))
    with pytest.raises(TableUnfit) as refused:
        await sqlite_stage.source(sqlite_stage.mapping(results=(), guard="timestamp")).open()
    for column in INSTANTS:
        assert re.search(rf"{column}( \(\w+\))? is BLOB, and must be a timestamp", str(refused.value))
