"""Looks that step over what is gone are faster, and find everything all the same."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from everpoll.stores.postgres import PostgresStore, marks
from everpoll.stores.postgres.marks import LOWEST, MARKS_PER_QUEUE, RANK_END, RANK_MIN, RUN_ROWS, Marks
from stores.stage import Stage, again, done

QUICK_S, SLOW_S = 0.0001, 0.05
PUT = """insert into everpoll.tasks (name, due_at)
    values ('job', clock_timestamp() - $1::float8 * interval '1 second') returning id"""


class HandClock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[asyncpg.Connection]:
    """One that stays open, with an old snapshot, as a long report elsewhere."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("select count(*) from everpoll.tasks")
            yield connection
    finally:
        await connection.close()


def make_slow(store: PostgresStore) -> HandClock:
    """Full looks have become slow, as with many dead rows: marks are in use, and the next full look is far away."""
    clock = HandClock()
    store._marks._clock = clock
    store._marks._slow = 2
    store._marks._full_at = clock.now + 100
    return clock


async def test_a_row_committed_late_is_found(stage: Stage, store: PostgresStore, url: str) -> None:
    """Its due time lies behind the mark. A marked look does not see it, but says when the next full one is due."""
    worker = await stage.worker()
    writer = await asyncpg.connect(url)
    try:
        writing = writer.transaction()
        await writing.start()
        late = await writer.fetchval(PUT, 5.0)
        async with transaction(url):
            await stage.put(20)
            assert len(await stage.take(worker, 10)) == 10
            clock = make_slow(store)
            assert len(await stage.take(worker, 10)) == 10
            await writing.commit()
            looked = await store.lease(worker, {"default": 10}, 10)
            assert looked.leases == []
            assert looked.next_due_s == pytest.approx(100)
            clock.now += 100
            assert [one.id for one in await stage.take(worker, 10)] == [late]
    finally:
        await writer.close()


async def test_where_full_looks_are_cheap_a_short_one_is_followed_by_one(
    stage: Stage, store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run of full batches marks are in use, too; nobody has to wait there."""
    # Cheap, that is, however busy the machine is on which this is proven.
    monkeypatch.setattr(marks, "SLOW_S", 3600.0)
    worker = await stage.worker()
    await stage.put(3 * RUN_ROWS)
    store._marks._clock = HandClock()
    writer = await asyncpg.connect(url)
    try:
        for _ in range(3):
            await stage.take(worker, RUN_ROWS)
        assert not store._marks.ranges(["default"]).is_full
        late = await writer.fetchval(PUT, 60.0)
        fresh = await stage.put_one()
        leases = await stage.take(worker, RUN_ROWS)
        assert sorted(one.id for one in leases) == sorted([late, fresh])
    finally:
        await writer.close()


async def test_a_new_priority_is_found_at_once(stage: Stage, store: PostgresStore) -> None:
    """Above, between and below the marks."""
    worker = await stage.worker()
    await stage.put(1, priority=10)
    await stage.put(1, priority=-10)
    await stage.take(worker)
    make_slow(store)
    ids = [await stage.put_one(priority=priority) for priority in (99, 10, 5, -10, -99)]
    assert [one.id for one in await stage.take(worker)] == ids


async def test_what_this_process_puts_behind_a_mark_is_found_at_once(stage: Stage, store: PostgresStore) -> None:
    """Handed back, rescued, promoted: no waiting for the next full look."""
    dead, worker = await stage.worker(), await stage.worker()
    await stage.put(3)
    await stage.put(3, delay_s=30)
    first = await stage.take(worker, 1)
    await stage.take(dead, 2)
    await stage.pass_time(31)
    await stage.put(2)
    assert len(await stage.take(worker, 100)) == 5
    make_slow(store)
    await store.settle(worker, [again(first[0], None)])
    assert [one.id for one in await stage.take(worker)] == [first[0].id]
    make_slow(store)
    finder = await stage.worker("finder")
    rescued = await stage.declare_dead(finder, dead)
    assert rescued == 2
    assert len(await stage.take(finder)) == rescued


async def test_random_work_under_a_held_snapshot(stage: Stage, store: PostgresStore, url: str) -> None:
    """Priorities, late rows, full and short looks, marks in use throughout: every row is leased exactly once."""
    rng = random.Random(7)
    worker = await stage.worker()
    expected: list[int] = []
    found: list[int] = []
    clock = HandClock()
    store._marks._clock = clock
    writer = await asyncpg.connect(url)
    try:
        async with transaction(url):
            for _ in range(60):
                expected += await stage.put(rng.randint(0, 30), priority=rng.randint(-20, 20))
                if rng.random() < 0.5:
                    expected.append(await writer.fetchval(PUT, rng.random() * 10))
                store._marks._slow = 2
                leases = await stage.take(worker, rng.randint(1, 25))
                found += [one.id for one in leases]
                await store.settle(worker, [done(one) for one in leases])
                clock.now += rng.random() * 0.01
            clock.now += 100
            while leases := await stage.take(worker, 25):
                found += [one.id for one in leases]
                clock.now += 100
    finally:
        await writer.close()
    assert sorted(found) == sorted(expected)


def look(marks: Marks, took_s: float, found: int = 0, asked: int = RUN_ROWS) -> bool:
    ranges = marks.ranges(["q"])
    marks.looked(ranges, took_s, found, asked)
    return ranges.is_full


def test_marks_are_used_only_while_they_pay() -> None:
    """After two slow looks, or in a run of full batches."""
    clock = HandClock()
    marks = Marks(clock)
    assert [look(marks, QUICK_S) for _ in range(5)] == [True] * 5
    assert [look(marks, SLOW_S) for _ in range(4)] == [True, True, False, False]
    clock.now += SLOW_S * 10
    assert [look(marks, QUICK_S), look(marks, QUICK_S)] == [True, True]
    run = Marks(clock)
    assert [look(run, QUICK_S, RUN_ROWS) for _ in range(4)] == [True, True, False, False]
    assert look(run, QUICK_S, RUN_ROWS - 1) is False
    assert look(run, QUICK_S) is True


def test_full_looks_take_a_tenth_of_the_time() -> None:
    clock = HandClock()
    marks = Marks(clock)
    for _ in range(2):
        look(marks, SLOW_S)
    full = 0
    for _ in range(1_000):
        took_s = SLOW_S if marks.ranges(["q"]).is_full else SLOW_S / 50
        full += look(marks, took_s)
        clock.now += took_s
    assert 0.02 <= full * SLOW_S / (clock.now - 1_000.0) <= 0.11


def test_the_ranges_cover_everything_but_what_is_behind_a_mark() -> None:
    clock = HandClock()
    marks = Marks(clock)
    later = LOWEST + timedelta(days=1)
    for _ in range(2):
        look(marks, SLOW_S)
    marks.leased([("q", 5, later), ("q", -3, LOWEST), ("q", -3, later), ("q", 5, LOWEST)])
    ranges = marks.ranges(["p", "q"])
    assert list(zip(ranges.queues, ranges.ranks_from, ranges.dues_from, ranges.ranks_to, strict=True)) == [
        ("p", RANK_MIN, LOWEST, RANK_END),
        ("q", RANK_MIN, LOWEST, -3),
        ("q", -3, later, 5),
        ("q", 5, later, RANK_END),
    ]
    marks.forget()
    assert marks.ranges(["p", "q"]).is_full


def test_marks_are_bounded() -> None:
    marks = Marks(HandClock())
    marks.leased(("q", rank, LOWEST + timedelta(seconds=rank)) for rank in range(100))
    assert sorted(marks._seen["q"]) == list(range(100 - MARKS_PER_QUEUE, 100))
