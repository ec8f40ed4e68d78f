"""A look locks the tasks that it leases and no others, and knows when other transactions have locked due tasks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.functions import versioned
from stores.stage import HOUR_S, Stage, done

LEASE = versioned("select * from everpoll.lease($1, $2, $3, $4, 1000000, null, null, null, null, true, $5, false)")
UNLOCKED = "select count(*) from (select from everpoll.tasks for update skip locked) t"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def looking(url: str, worker: int, rooms: dict[str, int], most: int) -> AsyncIterator[list[int]]:
    """A look whose transaction has not ended yet; the ids that it has leased."""
    async with connected(url) as connection, connection.transaction():
        yield await leased_by(connection, worker, rooms, most)


async def leased_by(connection: asyncpg.Connection, worker: int, rooms: dict[str, int], most: int) -> list[int]:
    """The ids that a look over this connection leases."""
    return list((await look_by(connection, worker, rooms, most))["ids"] or ())


async def look_by(connection: asyncpg.Connection, worker: int, rooms: dict[str, int], most: int) -> asyncpg.Record:
    """What a look over this connection answers."""
    floors = ["-infinity"] * len(rooms)
    return await connection.fetchrow(
        LEASE.replace("$5", "$5::text[]::timestamptz[]"), worker, most, list(rooms), list(rooms.values()), floors
    )


async def test_two_queues_do_not_starve_each_other(stage: Stage, url: str) -> None:
    """One worker with one slot takes the task of one queue; that of the other is free, and another worker gets it."""
    first, second = await stage.worker(), await stage.worker()
    ids = [await stage.put_one(queue=queue) for queue in ("a", "b")]
    async with looking(url, first, {"a": 1, "b": 1}, 1) as taken:
        looked = await stage.store.lease(second, {"b": 1}, 1)
    assert [*taken, *(one.id for one in looked.leases)] == ids
    ids = [await stage.put_one(queue=queue) for queue in ("a", "b")]
    async with looking(url, first, {"a": 1, "b": 1}, 1) as taken:
        looked = await stage.store.lease(second, {"a": 1, "b": 1}, 1)
        assert not looked.is_all
        assert looked.leases or looked.next_due_s == 0.0
    found = looked.leases or (await stage.store.lease(second, {"a": 1, "b": 1}, 1)).leases
    assert [*taken, *(one.id for one in found)] == ids


async def test_a_look_that_skipped_locked_tasks_knows_it_and_is_not_the_last(stage: Stage, url: str) -> None:
    """They may be free in a moment: the transaction that has them may give them up."""
    first, second = await stage.worker(), await stage.worker()
    await stage.put(1, queue="a")
    for rooms in ({"a": 5}, {"a": 5, "b": 5}):
        async with looking(url, first, {"a": 1}, 1) as taken:
            assert len(taken) == 1
            looked = await stage.store.lease(second, rooms, 5)
            assert (looked.leases, looked.is_all, looked.next_due_s) == ([], False, 0.0)
        # That transaction has committed: the task is leased, and nothing else is due.
        looked = await stage.store.lease(second, rooms, 5)
        assert (looked.leases, looked.is_all) == ([], True)
        await stage.bury(first)
        first = await stage.worker()


@pytest.mark.parametrize("queues", [2, 40])
async def test_a_look_at_many_queues_locks_no_row_too_many(stage: Stage, url: str, queues: int) -> None:
    """The best tasks of all queues, in order; and every other row is free for others."""
    worker = await stage.worker()
    names = [f"q{number:03}" for number in range(queues)]
    tasks = [NewTask(name="job", queue=name, priority=number % 3) for number in range(20) for name in names]
    answers = await stage.store.enqueue(tasks)
    best = sorted(zip(tasks, answers, strict=True), key=lambda one: (-one[0].priority, one[1].id))[:10]
    async with looking(url, worker, dict.fromkeys(names, 10), 10) as taken, connected(url) as other:
        assert taken == [one.id for _, one in best]
        assert await other.fetchval(UNLOCKED) == len(tasks) - 10


@pytest.mark.parametrize("queues", [3, 40])
async def test_the_oldest_tasks_come_first_whatever_their_queues_are_called(
    stage: Stage, store: PostgresStore, queues: int
) -> None:
    """One task in each queue, and as much room: all of them are found, in the order in which they were enqueued."""
    worker = await stage.worker()
    names = [f"q{number:03}" for number in reversed(range(queues))]
    ids = [await stage.put_one(queue=name) for name in names]
    looked = await store.lease(worker, dict.fromkeys(names, 1), queues)
    assert [one.id for one in looked.leases] == ids


async def test_each_of_many_queues_gives_no_more_than_its_room(stage: Stage, store: PostgresStore) -> None:
    worker = await stage.worker()
    names = [f"q{number:03}" for number in range(30)]
    for name in names:
        await stage.put(5, queue=name)
    looked = await store.lease(worker, {name: place % 3 for place, name in enumerate(names)}, 500)
    taken = [sum(one.queue == name for one in looked.leases) for name in names]
    assert taken == [place % 3 for place in range(30)]
    assert looked.is_all


async def test_many_queues_fall_due_and_tell_when_the_next_one_does(stage: Stage, store: PostgresStore) -> None:
    worker = await stage.worker()
    names = [f"q{number:03}" for number in range(30)]
    due = [await stage.put_one(queue=name, delay_s=60.0) for name in names]
    await stage.put_one(queue=names[7], delay_s=HOUR_S)
    looked = await store.lease(worker, dict.fromkeys(names, 5), 100)
    assert looked.leases == []
    assert looked.next_due_s == pytest.approx(60, abs=30)
    await stage.pass_time(100)
    looked = await store.lease(worker, dict.fromkeys(names, 5), 100)
    assert sorted(one.id for one in looked.leases) == due
    assert looked.next_due_s == pytest.approx(HOUR_S - 100, abs=60)


async def test_of_more_than_one_look_can_make_ready_the_urgent_ones_come_first(stage: Stage) -> None:
    """They fall due together, and were enqueued last."""
    worker = await stage.worker()
    await stage.put(6_000, delay_s=60.0)
    urgent = [await stage.put_one(delay_s=60.0, priority=priority) for priority in (1, 9, 5)]
    await stage.pass_time(100)
    assert [one.id for one in await stage.take(worker, 3)] == [urgent[1], urgent[2], urgent[0]]


async def test_among_many_tasks_of_low_priority_the_usual_ones_come_first(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(6_000, delay_s=60.0, priority=-1)
    usual = await stage.put_one(delay_s=60.0)
    await stage.pass_time(100)
    assert [one.id for one in await stage.take(worker, 1)] == [usual]


async def test_large_payloads_are_handed_out_in_bounded_portions(
    stage: Stage, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everpoll.stores.limits.LEASE_BYTES", 10_000)
    worker = await stage.worker()
    ids = await stage.put(5, args='"' + "x" * 4_000 + '"')
    large = await stage.put_one(args='"' + "x" * 40_000 + '"')
    small = await stage.put_one()
    portions = []
    while (looked := await store.lease(worker, {"default": 10}, 10)).leases:
        portions.append([one.id for one in looked.leases])
    assert portions == [ids[:2], ids[2:4], ids[4:], [large], [small]]


async def test_tasks_that_run_for_long_leave_the_ready_index(stage: Stage, url: str) -> None:
    """A look would walk over each of them."""
    worker = await stage.worker()
    await stage.put(20)
    leases = await stage.take(worker)
    await stage.beat(worker, [one.id for one in leases])
    async with connected(url) as connection:
        count = "select count(*) from everpoll.tasks where line = 0"
        assert await connection.fetchval(count) == 20, "a lease that is a moment old stays where it is"
        await stage.pass_time(6)
        await stage.beat(worker, [one.id for one in leases])
        assert await connection.fetchval(count) == 0


async def test_enqueues_with_the_same_keys_never_deadlock(stage: Stage, url: str) -> None:
    """Many callers, keys in any order, tasks that end under them: no call fails, and no key has two live tasks."""
    stores = [stage.store, *[await stage.another_store() for _ in range(3)]]
    worker = await stage.worker()
    over = asyncio.Event()

    async def work() -> None:
        while not over.is_set():
            for lease in await stage.take(worker, 20):
                await stage.store.settle(worker, [done(lease)])

    async def call(number: int) -> None:
        for turn in range(15):
            keys = [str((number * 7 + turn * 3 + step * (1 if number % 2 else -1)) % 12) for step in range(12)]
            await stores[number % 4].enqueue([NewTask(name="job", key=key) for key in keys])

    working = asyncio.create_task(work())
    try:
        await asyncio.gather(*(call(number) for number in range(24)))
    finally:
        over.set()
        await working
    async with connected(url) as connection:
        assert (
            await connection.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0
        )
