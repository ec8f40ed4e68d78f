"""everpoll beside what makes a queue slow: held snapshots, many priorities, many queues, many that run or end.

Everything goes through the app or the store. SQL of the store's own tables stands at the end of this file only.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import asyncpg

from bench.arms import everpoll as jobs
from bench.arms import gate, watches
from everpoll import Everpoll
from everpoll.stores.contract import Store, TaskFilter, WorkerCard

LOOKS = 40
"""How often a look or a list is timed; the median counts."""


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[None]:
    """A snapshot that is held elsewhere, as by a dump or a long report: the server can clean up nothing newer."""
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction(isolation="repeatable_read", readonly=True)
        await transaction.start()
        await connection.fetchval("select count(*) from pg_class")
        yield
        await transaction.rollback()
    finally:
        await connection.close()


async def held_watches(order: gate.Order) -> None:
    """Looks a second without a held snapshot, then in windows while one is held."""
    late: list[float] = []
    app = watches.make(order, late)
    await watches.fill(app, order)
    gate.ready()

    async def rate(lasts_s: float) -> float:
        late.clear()
        began = time.perf_counter()
        await asyncio.sleep(lasts_s)
        return len(late) / (time.perf_counter() - began)

    async with app:
        await asyncio.sleep(order["warm_s"])
        control = await rate(order["control_s"])
        async with snapshot(order["url"]):
            rates = [await rate(order["window_s"]) for _ in range(order["windows"])]
        await gate.report(control=control, rates=rates)


async def held_ranks(order: gate.Order) -> None:
    """Jobs a second from a backlog of so many priorities, while a snapshot is held."""
    tally = jobs.Tally()
    app, noop = jobs.make(order, tally)
    store, ranks = await app.store(), order["ranks"]
    for start in range(0, order["rows"], jobs.FILL):
        numbers = range(start, min(start + jobs.FILL, order["rows"]))
        await store.enqueue([noop.new_task(gate.ARGS, {}, priority=number % ranks) for number in numbers])
    gate.ready()
    async with snapshot(order["url"]), app:
        await passed(tally, order["rows"] * 0.2, order["warm_s"])
        before, began = tally.settled, time.perf_counter()
        await passed(tally, order["rows"] * 0.9, order["lasts_s"])
        await gate.report(rate=(tally.settled - before) / (time.perf_counter() - began))
        await app.close(grace=0)


async def passed(tally: jobs.Tally, count: float, most_s: float) -> None:
    """Wait until so many are settled, and no longer than this."""
    until = time.perf_counter() + most_s
    while tally.settled < count and time.perf_counter() < until:  # noqa: ASYNC110 - the time ends it as well
        await asyncio.sleep(0.02)


async def holder(order: gate.Order) -> None:
    """A worker whose tasks all run and never end. Their priority is the highest, so every look meets them first."""
    app, begun, all_began = Everpoll(order["url"], slots=max(1, order["running"])), 0, asyncio.Event()

    async def lasts() -> None:
        nonlocal begun
        begun += 1
        if begun >= order["running"]:
            all_began.set()
        await asyncio.Event().wait()

    job = app.jobs.add(lasts, name="lasts")
    for start in range(0, order["running"], jobs.FILL):
        await job.enqueue_many([()] * min(jobs.FILL, order["running"] - start), priority=5)
    async with app:
        if order["running"]:
            await all_began.wait()
        # So that they have run for a while when the measurement begins.
        await asyncio.sleep(order["aged_s"])
        await gate.report(running=begun)
        await app.close(grace=0)


async def fleet(order: gate.Order) -> None:
    """So many workers, and new jobs at an even pace: how long each waits for its handler."""
    taken: list[float] = []

    async def noop(sent_at: float) -> None:
        taken.append(time.perf_counter() - sent_at)

    apps = [Everpoll(order["url"]) for _ in range(order["workers"] + 1)]
    sender = [app.jobs.add(noop, name="noop") for app in apps][-1]
    await apps[-1].store()
    try:
        for app in apps[:-1]:
            await app.__aenter__()
        await paced(order["warm_s"], order["rate"], lambda: sender.enqueue(time.perf_counter()))
        await gate.ready_meanwhile()
        taken.clear()
        sent = await paced(order["lasts_s"], order["rate"], lambda: sender.enqueue(time.perf_counter()))
        await gate.report(jobs=sent, ran=len(taken), **percentiles(taken))
    finally:
        await asyncio.gather(*(app.close(grace=1) for app in apps))


async def paced(lasts_s: float, rate: float, send: Callable[[], Awaitable[object]]) -> int:
    """Send at an even pace, without waiting for the answers in between; how many were sent."""
    began, sent, sending = time.perf_counter(), 0, set[asyncio.Future[object]]()
    while (elapsed_s := time.perf_counter() - began) < lasts_s:
        while sent < elapsed_s * rate:
            call = asyncio.ensure_future(send())
            sending.add(call)
            call.add_done_callback(sending.discard)
            sent += 1
        await asyncio.sleep(min(0.01, 1 / rate))
    if sending:
        await asyncio.wait(sending)
    return sent


async def many_queues(order: gate.Order) -> None:
    """What one look over so many queues costs: nothing there, and full ones."""
    app = Everpoll(order["url"])
    queues = [f"q{number:04}" for number in range(order["queues"])]

    async def noop() -> None: ...

    each = [app.jobs.add(noop, name=f"noop_{queue}", queue=queue) for queue in queues]
    store, most = await app.store(), int(order["most"])
    await sign_on(store, queues)
    rooms: dict[str, int] = dict.fromkeys(queues, most)
    empty_ms = [await timed_ms(store.lease(1, rooms, most)) for _ in range(LOOKS)]
    for start in range(0, order["tasks"], jobs.FILL):
        numbers = range(start, min(start + jobs.FILL, order["tasks"]))
        await store.enqueue([each[number % len(each)].new_task((), {}) for number in numbers])
    gate.ready()
    connection = await asyncpg.connect(order["url"])
    await connection.execute("checkpoint")
    # The first full look after a checkpoint writes whole pages; the ones behind it are what a worker pays.
    await store.lease(1, rooms, most)
    since, wal_before = await next_transaction(connection), await wal_bytes(connection)
    full_ms = await timed_ms(store.lease(1, rooms, most))
    wal, locked = await wal_bytes(connection) - wal_before, await locked_rows(connection, since)
    await connection.close()
    await gate.report(empty_ms=median(empty_ms), full_ms=full_ms, wal=wal, locked=locked)
    await app.close()


async def sign_on(store: Store, queues: list[str]) -> None:
    card = WorkerCard(
        incarnation=1, label="bench", host="bench", pid=1, queues=tuple(queues), slots=10_000, version="0"
    )
    await store.sign_on(card, 3600.0)


async def due_together(order: gate.Order) -> None:
    """Many tasks fall due at one instant, few of them urgent: how late those are, and how many others run before."""
    app, others, late = Everpoll(order["url"]), 0, list[float]()
    others_before = 0

    async def urgent(due_at: float) -> None:
        nonlocal others_before
        late.append(time.time() - due_at)
        others_before = others

    async def other(_due_at: float) -> None:
        nonlocal others
        others += 1

    first, second = app.jobs.add(urgent, name="urgent"), app.jobs.add(other, name="other")
    store, count, share = await app.store(), order["tasks"], order["urgent"]
    due_at, rng, wanted = time.time() + order["fill_s"], random.Random(7), 0
    for start in range(0, count, jobs.FILL):
        delay = due_at - time.time()
        tasks = [
            first.new_task((due_at,), {}, priority=10, delay=delay)
            if rng.random() < share
            else second.new_task((due_at,), {}, delay=delay)
            for _ in range(min(jobs.FILL, count - start))
        ]
        await store.enqueue(tasks)
        assert time.time() < due_at - 1, "filling took too long"
        wanted += sum(task.name == "urgent" for task in tasks)
    async with app:
        while len(late) < wanted:  # noqa: ASYNC110 - the handlers are counted, and cost no event each
            await asyncio.sleep(0.05)
        await gate.report(urgent=wanted, last_ms=max(late) * 1e3, others_before=others_before)
        await app.close(grace=0)


async def held_pickup(order: gate.Order) -> None:
    """How long jobs wait for their handler at an even pace, in quarters of the time that a snapshot is held."""
    taken: list[float] = []

    async def noop(sent_at: float) -> None:
        taken.append(time.perf_counter() - sent_at)

    worker, sender = Everpoll(order["url"]), Everpoll(order["url"])
    worker.jobs.add(noop, name="noop")
    job = sender.jobs.add(noop, name="noop")
    await sender.store()
    async with worker:
        await paced(order["warm_s"], order["rate"], lambda: job.enqueue(time.perf_counter()))
        await gate.ready_meanwhile()
        quarters = []
        async with snapshot(order["url"]):
            for _ in range(4):
                taken.clear()
                await paced(order["lasts_s"] / 4, order["rate"], lambda: job.enqueue(time.perf_counter()))
                quarters.append(percentiles(taken))
        await gate.report(quarters=quarters)
    await sender.close()


async def listing(order: gate.Order) -> None:
    """How long a list by a name that no task has takes beside so many ended tasks, and one by their own name."""
    tally = jobs.Tally()
    app, noop = jobs.make(order, tally)
    async with app:
        await jobs.fill(noop, order["seed"])
        await tally.reaches(order["seed"])
    connection = await asyncpg.connect(order["url"])
    await multiply_history(connection, order["ended"] // order["seed"])
    await connection.close()
    gate.ready()
    store = await app.store()
    there = [await timed_ms(store.tasks(TaskFilter(name="noop"))) for _ in range(3)]
    not_there = [await timed_ms(store.tasks(TaskFilter(name="nope"))) for _ in range(3)]
    await gate.report(there_ms=median(there), not_there_ms=median(not_there))
    await app.close()


async def timed_ms(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


def percentiles(taken: list[float]) -> dict[str, float]:
    ordered = sorted(taken)
    return {f"p{percent}_ms": ordered[int(len(ordered) * percent / 100)] * 1e3 for percent in (50, 99)}


# The store's own tables: change this when they do.


async def wal_bytes(connection: Any) -> int:
    return int(await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


async def next_transaction(connection: Any) -> int:
    return int(await connection.fetchval("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))


async def locked_rows(connection: Any, since: int) -> int:
    """Rows that carry the mark of a lock that this transaction, or a later one, took."""
    return int(await connection.fetchval("select count(*) from everpoll.tasks where xmax::text::bigint >= $1", since))


async def multiply_history(connection: Any, times: int) -> None:
    """Every ended task so many times, under other ids."""
    found = await connection.fetch(
        "select attname from pg_attribute where attrelid = 'everpoll.history'::regclass and attnum > 0 "
        "and not attisdropped order by attnum"
    )
    columns = [str(row["attname"]) for row in found]
    values = ["id + copy * 1000000" if column == "id" else column for column in columns]
    await connection.execute(
        f"insert into everpoll.history ({', '.join(columns)}) select {', '.join(values)} "  # noqa: S608
        f"from everpoll.history, generate_series(1, {times - 1}) copy",
        timeout=None,
    )


if __name__ == "__main__":
    BENCHES: list[gate.Bench] = [
        *(held_watches, held_ranks, holder, fleet, many_queues, due_together, held_pickup, listing)
    ]
    gate.main({one.__name__: one for one in BENCHES})
