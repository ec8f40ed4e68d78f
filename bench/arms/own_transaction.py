"""everpoll with jobs that are enqueued in a transaction of the caller's own, beside a row of the caller's."""

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import Any

import asyncpg

from bench.arms import gate
from everpoll import Everpoll

TABLE = "create table if not exists ledger (number bigint)"


def make(order: gate.Order, begun: list[float]) -> tuple[Everpoll, Any]:
    """An app with the no-op job; `begun` gets when each of them began."""
    app = Everpoll(order["url"])

    async def noop(_number: int, _text: str, _tags: list[str]) -> None:
        begun.append(time.perf_counter())

    return app, app.jobs.add(noop, name="noop")


async def latency_worker(order: gate.Order) -> None:
    """Run them."""
    begun: list[float] = []
    app, _ = make(order, begun)
    async with app:
        await gate.ready_meanwhile()
        await gate.ready_meanwhile()
        await gate.report(begun_at=begun)


async def latency_sender(order: gate.Order) -> None:
    """Enqueue one at a time; tell when each commit began."""
    app, job = make(order, [])
    await app.store()
    ways = {"asyncpg": by_asyncpg, "psycopg": by_psycopg, "sqlite3": by_sqlite3}
    await gate.report(sent_at=await ways[order["driver"]](order, job))
    await app.close()


async def by_asyncpg(order: gate.Order, job: Any) -> list[float]:
    """On Postgres."""
    connection = await asyncpg.connect(order["url"])
    await connection.execute(TABLE)
    gate.ready()
    sent = []
    for number in range(order["jobs"]):
        await asyncio.sleep(gate.pause_s(order))
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into ledger values ($1)", number)
        await job.enqueue(number, gate.ARGS[0], gate.ARGS[2], connection=connection)
        sent.append(time.perf_counter())
        await transaction.commit()
    await connection.close()
    return sent


async def by_psycopg(order: gate.Order, job: Any) -> list[float]:
    """On Postgres."""
    import psycopg  # noqa: PLC0415 - the other drivers need none

    connection = await psycopg.AsyncConnection.connect(order["url"])
    await connection.execute(TABLE)
    await connection.commit()
    gate.ready()
    sent = []
    for number in range(order["jobs"]):
        await asyncio.sleep(gate.pause_s(order))
        await connection.execute("insert into ledger values (%s)", [number])
        await job.enqueue(number, gate.ARGS[0], gate.ARGS[2], connection=connection)
        sent.append(time.perf_counter())
        await connection.commit()
    await connection.close()
    return sent


async def by_sqlite3(order: gate.Order, job: Any) -> list[float]:
    """On SQLite, in a thread: its calls block."""

    def send() -> list[float]:
        with closing(sqlite3.connect(order["url"].removeprefix("sqlite:///"), timeout=60)) as connection:
            with connection:
                connection.execute(TABLE)
            gate.ready()
            sent = []
            for number in range(order["jobs"]):
                time.sleep(gate.pause_s(order))
                connection.execute("insert into ledger values (?)", [number])
                job.sync.enqueue(number, gate.ARGS[0], gate.ARGS[2], connection=connection)
                sent.append(time.perf_counter())
                connection.commit()
            return sent

    return await asyncio.to_thread(send)


if __name__ == "__main__":
    gate.main({one.__name__: one for one in (latency_worker, latency_sender)})
