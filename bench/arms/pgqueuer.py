"""pgqueuer 1.x on asyncpg: batch 1,000 on one connection for throughput, the documented default of 10 for latency."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
from pgqueuer import Queries, QueueManager  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found]

from bench.arms import gate
from bench.arms.fleet import dismissed, followed, led

FILL = 5_000
EMPTY = "select not exists (select from pgqueuer)"
LEFT = "select exists (select from pgqueuer)"
LOOK_S = 0.002


async def installed(url: str) -> Any:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    return queries


async def put(queries: Any, count: int, size: int) -> None:
    payload = gate.PAYLOAD.encode()
    for start in range(0, count, size):
        now = min(size, count - start)
        await queries.enqueue(["noop"] * now, [payload] * now, [0] * now)


async def drain(order: gate.Order) -> None:
    queries, jobs = await installed(order["url"]), order["jobs"]
    observer = await asyncpg.connect(order["url"])
    await put(queries, jobs, FILL)
    manager, ran, began, all_ran = QueueManager(queries), 0, 0.0, asyncio.Event()

    async def noop(job: Any) -> None:
        nonlocal ran, began
        if not ran:
            began = time.perf_counter()
        json.loads(job.payload)
        ran += 1
        if ran == jobs:
            all_ran.set()

    manager.entrypoint("noop")(noop)
    gate.ready()
    cpu_s = time.process_time()
    running = asyncio.create_task(manager.run(batch_size=order["batch"], mode=QueueExecutionMode.drain))
    await all_ran.wait()
    while not await observer.fetchval(EMPTY):  # noqa: ASYNC110 - the database has no event for it
        await asyncio.sleep(LOOK_S)
    ended, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    await gate.report(rate=jobs / (ended - began), python_us=cpu_s / jobs * 1e6)
    await running


async def latency_worker(order: gate.Order) -> None:
    taken: list[float] = []
    manager = QueueManager(await installed(order["url"]))

    async def noop(job: Any) -> None:
        taken.append(time.perf_counter() - json.loads(job.payload)[0])

    manager.entrypoint("noop")(noop)
    running = asyncio.create_task(manager.run(batch_size=10))
    await asyncio.sleep(0.5)
    await gate.ready_meanwhile()
    await gate.ready_meanwhile()
    await gate.report(taken_ms=[one * 1e3 for one in taken])
    manager.shutdown.set()
    await running


async def latency_sender(order: gate.Order) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(order["url"])))
    gate.ready()
    for _ in range(order["jobs"]):
        await asyncio.sleep(gate.pause_s(order))
        await queries.enqueue("noop", json.dumps([time.perf_counter(), *gate.ARGS[::2]]).encode(), 0)
    await gate.report(sent=order["jobs"])


async def enqueue(order: gate.Order) -> None:
    queries = await installed(order["url"])
    payload = gate.PAYLOAD.encode()
    await queries.enqueue("noop", payload, 0)
    gate.ready()
    began = time.perf_counter()
    for _ in range(order["one"]):
        await queries.enqueue("noop", payload, 0)
    one = order["one"] / (time.perf_counter() - began)
    many = {}
    for size in order["sizes"]:
        gate.ready()
        began = time.perf_counter()
        await put(queries, order["many"], size)
        many[f"many_{size}"] = order["many"] / (time.perf_counter() - began)
    await gate.report(one=one, **many)


async def idle(order: gate.Order) -> None:
    manager = QueueManager(await installed(order["url"]))

    async def noop(job: Any) -> None: ...

    manager.entrypoint("noop")(noop)
    running = asyncio.create_task(manager.run(batch_size=10))
    await asyncio.sleep(0.5)
    await gate.ready_meanwhile()
    await gate.report(push=True)
    manager.shutdown.set()
    await running


async def fleet(order: gate.Order) -> None:
    """Its limits are of entrypoints: one entrypoint for each key, limited over all workers."""
    queries, observer = await installed(order["url"]), await asyncpg.connect(order["url"])
    names = [f"key-{number % order['keys']}" for number in range(order["jobs"])]
    payload = gate.PAYLOAD.encode()
    for start in range(0, order["jobs"], FILL):
        some = names[start : start + FILL]
        await queries.enqueue(some, [payload] * len(some), [0] * len(some))
    found = await led("bench.arms.pgqueuer", order, lambda: observer.fetchval(LEFT))
    await gate.report(**found)
    await dismissed(order)


async def member(order: gate.Order) -> None:
    manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(order["url"]))))

    async def noop(job: Any) -> None:
        json.loads(job.payload)

    for number in range(order["keys"]):
        manager.entrypoint(f"key-{number}", concurrency_limit=order["limit"])(noop)

    @contextlib.asynccontextmanager
    async def working() -> AsyncIterator[None]:
        running = asyncio.create_task(manager.run(batch_size=order["slots"]))
        try:
            yield
        finally:
            manager.shutdown.set()
            await running

    await followed(working)


if __name__ == "__main__":
    gate.main({one.__name__: one for one in (drain, latency_worker, latency_sender, enqueue, idle, fleet, member)})
