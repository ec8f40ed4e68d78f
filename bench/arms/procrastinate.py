"""procrastinate 3.x on psycopg 3: many asynchronous jobs at a time, a pool, LISTEN/NOTIFY on."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

from bench.arms import gate
from bench.arms.fleet import dismissed, followed, led

FILL = 1_000
EMPTY = "select not exists (select from procrastinate_jobs where status in ('todo', 'doing')) as done"
LOOK_S = 0.002

logging.getLogger("procrastinate").setLevel(logging.ERROR)


@contextlib.asynccontextmanager
async def opened(url: str, *, install: bool = True) -> AsyncIterator[Any]:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=20))
    async with app.open_async():
        if install:
            await app.schema_manager.apply_schema_async()
        yield app


def arguments(**more: Any) -> dict[str, Any]:
    return {"text": gate.ARGS[0], "number": gate.ARGS[1], "tags": gate.ARGS[2], **more}


async def drain(order: gate.Order) -> None:
    jobs, ran, began, all_ran = order["jobs"], 0, 0.0, asyncio.Event()

    async def noop(**_: Any) -> None:
        nonlocal ran, began
        if not ran:
            began = time.perf_counter()
        ran += 1
        if ran == jobs:
            all_ran.set()

    async with opened(order["url"]) as app:
        task = app.task(name="noop")(noop)
        for _ in range(0, jobs, FILL):
            await task.batch_defer_async(*[arguments()] * FILL)
        gate.ready()
        cpu_s = time.process_time()
        options = {"concurrency": order["concurrency"], "install_signal_handlers": False}
        running = asyncio.create_task(app.run_worker_async(wait=False, **options))
        await all_ran.wait()
        while not (await app.connector.execute_query_one_async(EMPTY))["done"]:  # noqa: ASYNC110 - the database has no event for it
            await asyncio.sleep(LOOK_S)
        ended, cpu_s = time.perf_counter(), time.process_time() - cpu_s
        await gate.report(rate=jobs / (ended - began), python_us=cpu_s / jobs * 1e6)
        await running


async def latency_worker(order: gate.Order) -> None:
    taken: list[float] = []

    async def noop(sent_at: float, **_: Any) -> None:
        taken.append(time.perf_counter() - sent_at)

    async with opened(order["url"]) as app:
        app.task(name="noop")(noop)
        async with working(app):
            await gate.ready_meanwhile()
            await gate.ready_meanwhile()
            await gate.report(taken_ms=[one * 1e3 for one in taken])


@contextlib.asynccontextmanager
async def working(app: Any) -> AsyncIterator[None]:
    running = asyncio.create_task(app.run_worker_async(concurrency=50, install_signal_handlers=False))
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def latency_sender(order: gate.Order) -> None:
    async def noop(sent_at: float, **_: Any) -> None: ...

    async with opened(order["url"], install=False) as app:
        task = app.task(name="noop")(noop)
        gate.ready()
        for _ in range(order["jobs"]):
            await asyncio.sleep(gate.pause_s(order))
            await task.defer_async(sent_at=time.perf_counter(), text=gate.ARGS[0], tags=gate.ARGS[2])
        await gate.report(sent=order["jobs"])


async def enqueue(order: gate.Order) -> None:
    async def noop(**_: Any) -> None: ...

    async with opened(order["url"]) as app:
        task = app.task(name="noop")(noop)
        await task.defer_async(**arguments())
        gate.ready()
        began = time.perf_counter()
        for _ in range(order["one"]):
            await task.defer_async(**arguments())
        one = order["one"] / (time.perf_counter() - began)
        many = {}
        for size in order["sizes"]:
            gate.ready()
            began = time.perf_counter()
            for _ in range(0, order["many"], size):
                await task.batch_defer_async(*[arguments()] * size)
            many[f"many_{size}"] = order["many"] / (time.perf_counter() - began)
        await gate.report(one=one, **many)


async def idle(order: gate.Order) -> None:
    async def noop(**_: Any) -> None: ...

    async with opened(order["url"]) as app:
        app.task(name="noop")(noop)
        async with working(app):
            await gate.ready_meanwhile()
            await gate.report(push=True)


async def fleet(order: gate.Order) -> None:
    """Its limit is a lock: one job of each key at a time."""

    async def noop(**_: Any) -> None: ...

    async with opened(order["url"]) as app:
        task = app.task(name="noop")(noop)
        for number in range(order["jobs"]):
            await task.configure(lock=f"key-{number % order['keys']}").defer_async(**arguments())

        async def is_left() -> bool:
            return not (await app.connector.execute_query_one_async(EMPTY))["done"]

        found = await led("bench.arms.procrastinate", order, is_left)
        await gate.report(**found)
        await dismissed(order)


async def member(order: gate.Order) -> None:
    async def noop(**_: Any) -> None: ...

    async with opened(order["url"], install=False) as app:
        app.task(name="noop")(noop)
        await followed(lambda: working(app))


if __name__ == "__main__":
    gate.main({one.__name__: one for one in (drain, latency_worker, latency_sender, enqueue, idle, fleet, member)})
