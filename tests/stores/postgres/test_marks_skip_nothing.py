"""Looks that step over what is gone are faster, and find everything all the same."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from everpoll.stores.postgres import PostgresStore, marks
from everpoll.stores.postgres.marks import (
    LOWEST,
    MARKS_PER_QUEUE,
    RANGES_PER_POLL,
    RANK_END,
    RANK_MIN,
    RUN_ROWS,
    Marks,
)
from stores.stage import Stage, again, done
from stores.test_wakeup import Listener

QUICK_S, SLOW_S = 0.0001, 0.05
PUT = """insert into everpoll.tasks (kind, name, due_at)
    values ('job', 'job', clock_timestamp() - $1::float8 * interval '1 second') returning id"""


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


def by_hand(store: PostgresStore) -> HandClock:
    """Let the marks of a calm store work again, by a clock that stands still."""
    for name in ("ranges", "sweep"):
        vars(store._marks).pop(name, None)
    clock = HandClock()
    store._marks._clock = clock
    return clock


def make_slow(store: PostgresStore) -> HandClock:
    """Full looks have become slow, as with many dead rows: marks are in use, and no sweep is due for a while."""
    clock = by_hand(store)
    store._marks._slow = marks.SLOW_POLLS
    store._marks._wants_full = False
    store._marks._full_at = clock.now
    store._marks._sweep_at = clock.now + 100
    return clock


async def sweep(store: PostgresStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the sweep that the last look began come to its end; it stays slow, however quick it was."""
    monkeypatch.setattr(marks, "SLOW_S", 0.0)
    if store._leasing._sweep is not None:
        await store._leasing._sweep
    clock.now += 100


async def test_a_row_committed_late_is_found(
    stage: Stage, store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its due time lies behind the mark. A marked look does not see it, but the sweep does, and wakes the worker."""
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
            clock.now += 100
            heard = Listener()
            await store.listen(heard)
            assert await stage.take(worker, 10) == []
            await sweep(store, clock, monkeypatch)
            await heard.heard()
            assert [one.id for one in await stage.take(worker, 10)] == [late]
            assert await stage.take(worker, 10) == []
            await store.unlisten(heard)
    finally:
        await writer.close()


async def test_a_waiting_row_committed_late_is_found(
    stage: Stage, store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was due before the last look asked what waits, and became visible after that."""
    worker = await stage.worker()
    writer = await asyncpg.connect(url)
    try:
        writing = writer.transaction()
        await writing.start()
        late = await writer.fetchval(PUT.replace("(kind,", "(line, kind,").replace("('job'", "(1, 'job'"), 5.0)
        assert await stage.take(worker, 10) == []
        clock = make_slow(store)
        assert await stage.take(worker, 10) == []
        await writing.commit()
        clock.now += 100
        assert await stage.take(worker, 10) == []
        await sweep(store, clock, monkeypatch)
        assert [one.id for one in await stage.take(worker, 10)] == [late]
    finally:
        await writer.close()


async def test_where_full_looks_are_cheap_a_short_one_is_followed_by_one(
    stage: Stage, store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run of full batches marks are in use, too; no task has to wait there."""
    # Cheap, that is, however busy the machine is on which this is proven.
    monkeypatch.setattr(marks, "SLOW_S", 3600.0)
    worker = await stage.worker()
    await stage.put(3 * RUN_ROWS)
    by_hand(store)
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


async def test_random_work_under_a_held_snapshot(
    stage: Stage, store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Priorities, late rows, full and short looks, marks in use throughout: every row is leased exactly once."""
    rng = random.Random(7)
    worker = await stage.worker()
    expected: list[int] = []
    found: list[int] = []
    clock = by_hand(store)
    writer = await asyncpg.connect(url)
    try:
        async with transaction(url):
            for _ in range(60):
                expected += await stage.put(rng.randint(0, 30), priority=rng.randint(-20, 20))
                if rng.random() < 0.5:
                    expected.append(await writer.fetchval(PUT, rng.random() * 10))
                store._marks._slow = marks.SLOW_POLLS
                leases = await stage.take(worker, rng.randint(1, 25))
                found += [one.id for one in leases]
                await store.settle(worker, [done(one) for one in leases])
                clock.now += rng.random() * 0.01
            for _ in range(300):
                leases = await stage.take(worker, 25)
                found += [one.id for one in leases]
                await sweep(store, clock, monkeypatch)
                if len(found) == len(expected):
                    break
    finally:
        await writer.close()
    assert sorted(found) == sorted(expected)


def look(marks: Marks, took_s: float, found: int = 0, asked: int = RUN_ROWS) -> bool:
    ranges = marks.ranges(["q"])
    marks.polled(ranges, took_s, found, asked)
    return ranges.is_full


async def put_waiting(url: str, how_many: int) -> None:
    """Tasks that fall due one after another, within some milliseconds, which pass here."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        """insert into everpoll.tasks (kind, name, line, due_at)
        select 'job', 'job', 1, now() + n * interval '10 microseconds' from generate_series(1, $1::int) n""",
        how_many,
    )
    await connection.execute("select pg_sleep(max(extract(epoch from due_at - clock_timestamp()))) from everpoll.tasks")
    await connection.close()


async def test_a_backlog_that_falls_due_moves_the_mark_with_every_look(
    stage: Stage, store: PostgresStore, url: str
) -> None:
    """More is due than one look makes ready: the next look starts where this one ended, not at the beginning.

    Under a held snapshot each look would otherwise walk over everything that was made ready since the backlog began,
    fall further behind, and never catch up.
    """
    worker = await stage.worker()
    assert await stage.take(worker) == []
    make_slow(store)
    await put_waiting(url, 600)
    seen, starts = [], []
    for _ in range(60):
        starts.append(store._marks.ranges(["default"]).waits_from[0])
        seen += [one.id for one in await stage.take(worker, 10)]
    assert seen == sorted(seen), "in the order of their due times"
    assert len(seen) == 600, "each once, and none is left behind"
    assert starts == sorted(starts)
    assert len(set(starts[:6])) == 6, "every look that made some ready has moved the mark"


async def test_what_was_made_ready_and_left_behind_a_mark_is_taken_by_the_next_look(
    stage: Stage, store: PostgresStore, url: str
) -> None:
    """A task that is due later went first, since it was ready already: the mark is ahead of what falls due now."""
    worker = await stage.worker()
    assert await stage.take(worker) == []
    make_slow(store)
    store._marks.leased([("default", 0, datetime.now(UTC) + timedelta(hours=1))])
    await put_waiting(url, 30)
    found = [len(await stage.take(worker, 10)) for _ in range(4)]
    assert found == [10, 10, 10, 0], "without a sweep, and without a full look"


def test_marks_are_used_only_while_they_pay() -> None:
    """After two slow looks, until a sweep is quick; or in a run of full batches."""
    clock = HandClock()
    slow = Marks(clock)
    assert [look(slow, QUICK_S) for _ in range(5)] == [True] * 5
    assert [look(slow, SLOW_S) for _ in range(4)] == [True, True, False, False]
    clock.now += SLOW_S * 100
    assert look(slow, QUICK_S) is False
    asked = slow.sweep(["q"])
    assert asked is not None
    slow.swept(asked, QUICK_S, [], is_late=False)
    assert look(slow, QUICK_S) is True
    run = Marks(clock)
    assert [look(run, QUICK_S, RUN_ROWS) for _ in range(4)] == [True, True, False, False]
    assert look(run, QUICK_S, RUN_ROWS - 1) is False
    assert look(run, QUICK_S) is True


def test_sweeps_take_a_twentieth_of_the_time_and_one_is_under_way_at_a_time() -> None:
    clock = HandClock()
    slow = Marks(clock)
    for _ in range(2):
        look(slow, SLOW_S)
    sweeps = 0
    for _ in range(10_000):
        if (asked := slow.sweep(["q"])) is not None:
            assert slow.sweep(["q"]) is None
            clock.now += SLOW_S
            slow.swept(asked, SLOW_S, [], is_late=False)
            sweeps += 1
        clock.now += SLOW_S / 50
    assert 0.02 <= sweeps * SLOW_S / (clock.now - 1_000.0) <= 0.06


def test_full_looks_that_are_asked_for_take_a_twentieth_of_the_time() -> None:
    clock = HandClock()
    slow = Marks(clock)
    for _ in range(2):
        look(slow, SLOW_S)
    full = 0
    for _ in range(5_000):
        slow.forget()
        took_s = SLOW_S if slow.ranges(["q"]).is_full else SLOW_S / 50
        full += look(slow, took_s)
        clock.now += took_s
    assert 0.02 <= full * SLOW_S / (clock.now - 1_000.0) <= 0.06


def test_in_a_run_each_of_many_ranks_has_its_turn() -> None:
    clock = HandClock()
    run = Marks(clock)
    for _ in range(2):
        look(run, QUICK_S, RUN_ROWS)
    run.leased(("q", rank, LOWEST + timedelta(seconds=rank)) for rank in range(1_000))
    visited: set[int] = set()
    for _ in range(20):
        ranges = run.ranges(["q"])
        assert len(ranges.queues) <= RANGES_PER_POLL
        assert (ranges.ranks_from[0], ranges.ranks_from[-1], ranges.is_whole) == (RANK_MIN, 999, False)
        visited.update(ranges.ranks_from)
    assert visited == {RANK_MIN, *range(1_000)}


def test_what_a_sweep_found_is_looked_at_once() -> None:
    """The mark itself stays: else every look from then on would walk over what is gone."""
    clock = HandClock()
    slow = Marks(clock)
    for _ in range(2):
        look(slow, SLOW_S)
    slow.leased([("q", 5, LOWEST + timedelta(days=1))])
    asked = slow.sweep(["q"])
    assert asked is not None
    assert slow.swept(asked, SLOW_S, [("q", 5, LOWEST)], is_late=False)
    assert slow.ranges(["q"]).dues_from == [LOWEST, LOWEST]
    look(slow, SLOW_S)
    assert slow.ranges(["q"]).dues_from == [LOWEST, LOWEST + timedelta(days=1)]


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
    assert not marks.ranges(["p", "q"]).is_full
    clock.now += 20 * SLOW_S
    assert marks.ranges(["p", "q"]).is_full


def test_marks_are_bounded() -> None:
    marks = Marks(HandClock())
    marks.leased(("q", rank, LOWEST + timedelta(seconds=rank)) for rank in range(MARKS_PER_QUEUE + 10))
    assert sorted(marks._seen["q"]) == list(range(10, MARKS_PER_QUEUE + 10))


def test_what_a_sweep_found_is_visited_by_the_next_look_also_among_many_ranks() -> None:
    """In a run of full batches a look visits a part of the ranks: what was found is among them."""
    slow = Marks(HandClock())
    for _ in range(2):
        look(slow, SLOW_S, RUN_ROWS)
    slow.leased(("q", rank, LOWEST + timedelta(days=1)) for rank in range(1_000))
    asked = slow.sweep(["q"])
    assert asked is not None
    assert slow.swept(asked, SLOW_S, [("q", 700, LOWEST)], is_late=False)
    ranges = slow.ranges(["q"])
    assert 700 in ranges.ranks_from
    assert ranges.dues_from[ranges.ranks_from.index(700)] == LOWEST
    assert len(ranges.queues) <= RANGES_PER_POLL + 1


async def test_a_sweep_that_is_cut_off_is_repeated(stage: Stage, store: PostgresStore) -> None:
    """By an event loop that ends, as with an app that is used by one `asyncio.run` after another."""
    clock = make_slow(store)
    store._marks._sweep_at = clock.now
    worker = await stage.worker()
    await store.lease(worker, {"default": 1}, 1)
    assert store._leasing._sweep is not None
    store._leasing._sweep.cancel()
    await asyncio.wait([store._leasing._sweep])
    clock.now += 100
    store._marks._slow = marks.SLOW_POLLS
    assert store._marks.sweep(["default"]) is not None
