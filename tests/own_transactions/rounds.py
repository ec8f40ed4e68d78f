"""What tests do in transactions of callers, with whichever driver, and what is there afterwards."""

import random
import sqlite3
from contextlib import closing
from typing import Any

import asyncpg

from everpoll import Everpoll, Job
from everpoll.stores.contract import TaskFilter
from own_transactions.ways import AsyncWay, SyncWay, plain

LIMIT_S = 60.0


async def ledger(url: str) -> list[int]:
    """The rows that callers have committed."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(plain(url).removeprefix("sqlite:///"))) as file:
            return sorted(number for (number,) in file.execute("select number from ledger"))
    connection = await asyncpg.connect(plain(url))
    rows = await connection.fetch("select number from ledger")
    await connection.close()
    return sorted(row[0] for row in rows)


async def enqueued(app: Everpoll) -> list[int]:
    """The arguments of all tasks, live or ended."""
    store = await app.store()
    found: list[int] = []
    after: int | None = None
    while True:
        page = await store.tasks(TaskFilter(), 500, after)
        found += [task.args["args"][0] for task in page.tasks]
        if (after := page.after) is None:
            return sorted(found)


async def async_rounds(way: AsyncWay, job: Job[Any, Any], count: int, rng: random.Random) -> list[int]:
    """So many transactions that write a row and enqueue a job; the numbers of those that were committed."""
    await way.open()
    kept = []
    for number in range(count):
        is_kept = rng.random() < 0.5
        async with way.transaction(commit=is_kept) as (connection, write):
            if rng.random() < 0.5:
                await write(number)
                await job.enqueue(number, connection=connection)
            else:
                await job.enqueue_many([(number,)], connection=connection)
                await write(number)
        kept += [number] * is_kept
    await way.close()
    return kept


def sync_rounds(way: SyncWay, job: Job[Any, Any], count: int, rng: random.Random) -> list[int]:
    """The same with a driver whose calls block."""
    way.open()
    kept = []
    for number in range(count):
        is_kept = rng.random() < 0.5
        with way.transaction(commit=is_kept) as (connection, write):
            if rng.random() < 0.5:
                write(number)
                job.sync.enqueue(number, connection=connection)
            else:
                job.sync.enqueue_many([(number,)], connection=connection)
                write(number)
        kept += [number] * is_kept
    way.close()
    return kept
