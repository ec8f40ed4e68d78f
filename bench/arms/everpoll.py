"""everpoll, through its public API."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

from bench.arms import gate
from everpoll import Everpoll
from everpoll.engine.options import WorkerOptions
from everpoll.jobs import Job

if TYPE_CHECKING:  # `make bench ARGS=before` runs this file beside older sources
    from everpoll.jobs.options import EnqueueOptions

AnyJob = Job[..., Any]
DEFAULT_SLOTS = WorkerOptions().slots
FILL = 5_000
"""Jobs in one call of enqueue_many: what one transaction holds is kept moderate, as for the peers."""


class Tally:
    """When the first job began to run, and when the last one was settled in the database."""

    def __init__(self) -> None:
        self.began = 0.0
        self.settled = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def settle(self, task_ids: list[int]) -> None:
        """What the app calls after each committed batch."""
        self.settled += len(task_ids)
        if self.settled >= self._wanted:
            self._reached.set()

    async def reaches(self, count: int) -> float:
        """Wait for so many in all; when that was."""
        self._wanted = count
        if self.settled < count:
            self._reached.clear()
            await self._reached.wait()
        return time.perf_counter()


def make(order: gate.Order, tally: Tally) -> tuple[Everpoll, AnyJob]:
    """An app with the no-op job."""
    app = Everpoll(order["url"], slots=order.get("slots", DEFAULT_SLOTS))
    # The hook of the app's own waiters: exact, and free of queries of ours in the middle of the measurement.
    app.jobs.settled = tally.settle  # type: ignore[method-assign]

    async def noop(_text: str, _number: int, _tags: list[str]) -> None:
        if not tally.began:
            tally.began = time.perf_counter()

    return app, app.jobs.add(noop, name="noop")


async def fill(job: AnyJob, count: int, **options: "Unpack[EnqueueOptions]") -> int:
    """Enqueue that many; the id of the last."""
    last = 0
    for start in range(0, count, FILL):
        tasks = await job.enqueue_many([gate.ARGS] * min(FILL, count - start), **options)
        last = tasks[-1].id
    return last


async def drain(order: gate.Order) -> None:
    """`serves`: the HTTP server, metrics and all, is in the same process, and no client asks it anything.

    It starts before the clock: its start costs 35 ms once, which is a tenth of a drain of 30,000 jobs.
    """
    tally, jobs = Tally(), order["jobs"]
    app, noop = make(order, tally)
    last = await fill(noop, jobs)
    if order.get("serves"):
        from everpoll.server.running import HttpServer  # noqa: PLC0415 - older sources have none

        server = HttpServer(app, port=0)
        await server.start()
        app.accompany(server)
    gate.ready()
    cpu_s = time.process_time()
    async with app:
        ended = await tally.reaches(jobs)
        cpu_s = time.process_time() - cpu_s
        store = await app.store()
        left = [queue for queue in await store.queues() if queue.ready or queue.running]
        assert not left, left
        assert tally.settled == jobs
        assert (await app.task(last).info()).state == "done", "history is on"
        await gate.report(rate=jobs / (ended - tally.began), python_us=cpu_s / jobs * 1e6)


async def latency_worker(order: gate.Order) -> None:
    taken: list[float] = []
    app = Everpoll(order["url"])

    async def noop(sent_at: float, _text: str, _tags: list[str]) -> None:
        taken.append(time.perf_counter() - sent_at)

    job = app.jobs.add(noop, name="noop")
    async with app:
        await gate.ready_meanwhile()
        if order.get("alone"):
            await send(job, order)
            await asyncio.sleep(gate.pause_s(order))
        await gate.ready_meanwhile()
        await gate.report(taken_ms=[one * 1e3 for one in taken])


async def latency_sender(order: gate.Order) -> None:
    app = Everpoll(order["url"])

    async def noop(sent_at: float, _text: str, _tags: list[str]) -> None: ...

    job = app.jobs.add(noop, name="noop")
    await app.store()
    gate.ready()
    await send(job, order)
    await gate.report(sent=order["jobs"])
    await app.close()


async def send(job: AnyJob, order: gate.Order) -> None:
    for _ in range(order["jobs"]):
        await asyncio.sleep(gate.pause_s(order))
        await job.enqueue(time.perf_counter(), gate.ARGS[0], gate.ARGS[2])


async def enqueue(order: gate.Order) -> None:
    app, noop = make(order, Tally())
    await noop.enqueue(*gate.ARGS)
    gate.ready()
    one = await timed(order["one"], lambda: in_turn(noop, order["one"]))
    gate.ready()
    each = order["callers_jobs"] // order["callers"]
    callers = await timed(
        each * order["callers"], lambda: asyncio.gather(*(in_turn(noop, each) for _ in range(order["callers"])))
    )
    many = {}
    for size in order["sizes"]:
        gate.ready()
        many[f"many_{size}"] = await timed(order["many"], functools.partial(in_calls, noop, order["many"], size))
    await gate.report(one=one, callers=callers, **many)
    await app.close()


async def in_turn(job: AnyJob, count: int) -> None:
    for _ in range(count):
        await job.enqueue(*gate.ARGS)


async def in_calls(job: AnyJob, count: int, size: int) -> None:
    for _ in range(0, count, size):
        await job.enqueue_many([gate.ARGS] * size)


async def timed(count: int, work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return count / (time.perf_counter() - began)


async def backlog(order: gate.Order) -> None:
    """Rounds of so many due jobs, each beside the same future and ended ones."""
    tally = Tally()
    app, noop = make(order, tally)
    await fill(noop, order["future"], delay=86_400, priority=100)
    await fill(noop, order["ended"])
    passed = order["ended"]
    async with app:
        await tally.reaches(passed)
        await gate.ready_meanwhile()  # the table is vacuumed now
        for _ in range(order["rounds"]):
            await gate.ready_meanwhile()
            rate = await burst(noop, tally, order["jobs"])
            await gate.report(rate=rate)


async def burst(job: AnyJob, tally: Tally, count: int) -> float:
    """Enqueue in one transaction while the worker is idle; the rate from its commit to the last settlement."""
    before = tally.settled
    await job.enqueue_many([gate.ARGS] * count)
    began = time.perf_counter()
    return count / (await tally.reaches(before + count) - began)


@asynccontextmanager
async def held(url: str) -> AsyncIterator[None]:
    """A transaction elsewhere that keeps its snapshot and has written something."""
    import asyncpg  # noqa: PLC0415 - SQLite needs none

    connection = await asyncpg.connect(url)
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.execute("create temp table held (a int); insert into held values (1)")
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()


async def held_minute(order: gate.Order) -> None:
    """Chunks at even distances for a minute, while a transaction elsewhere is open; warmed up before it opens."""
    tally = Tally()
    app, noop = make(order, tally)
    rates: list[float] = []
    async with app:
        for _ in range(order["warm_up"]):
            await burst(noop, tally, order["chunk"])
        await gate.ready_meanwhile()
        async with held(order["url"]):
            opened = time.perf_counter()
            for number in range(order["chunks"]):
                await asyncio.sleep(max(0.0, opened + number * order["every_s"] - time.perf_counter()))
                rates.append(await burst(noop, tally, order["chunk"]))
            await asyncio.sleep(max(0.0, opened + order["chunks"] * order["every_s"] - time.perf_counter()))
        await gate.report(rates=rates, held_s=time.perf_counter() - opened)


async def idle(order: gate.Order) -> None:
    app, _ = make(order, Tally())
    async with app:
        await gate.ready_meanwhile()
        health = app.health().worker
        await gate.report(push=health is not None and health.push)


if __name__ == "__main__":
    BENCHES: list[gate.Bench] = [drain, latency_worker, latency_sender, enqueue, backlog, held_minute, idle]
    gate.main({one.__name__: one for one in BENCHES})
