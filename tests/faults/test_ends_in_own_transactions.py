"""kill -9 at random while jobs write a row and end in one transaction: each job that is done has exactly one row."""

import asyncio
import os
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from everpoll import Everpoll
from everpoll.stores.contract import RESCUE_LIMIT, TaskFilter, TaskInfo
from faults.bookkeepers import TABLE, book, book_plainly
from faults.ledger import Ledger
from worker_processes import WorkerProcess, story_of

GIVE_UP_S = 600.0
LOOK_S = 0.02


async def ask(url: str, sql: str) -> list[int]:
    """The first column of what the database answers."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as file, file:
            return [row[0] for row in file.execute(sql)]
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def enqueue(url: str, numbers: range) -> None:
    """Half of them run on the event loop, half in threads; on SQLite all in threads."""
    app = Everpoll(url)
    plain = app.jobs.add(book_plainly._function, name="book_plainly")
    on_loop = plain if url.startswith("sqlite") else app.jobs.add(book._function, name="book")
    await on_loop.enqueue_many([(number,) for number in numbers[::2]])
    await plain.enqueue_many([(number,) for number in numbers[1::2]])
    await app.close()


async def retried(url: str) -> int:
    """Put back what has lost too many workers; how many tasks that were."""
    lost = [task for task in await ended(url) if task.state == "failed"]
    assert all(task.rescues >= RESCUE_LIMIT for task in lost), "nothing else fails a job here"
    app = Everpoll(url)
    for task in lost:
        assert await app.task(task.id).retry()
    await app.close()
    return len(lost)


async def ended(url: str) -> list[TaskInfo]:
    """Every task of the database."""
    app = Everpoll(url)
    store = await app.store()
    found: list[TaskInfo] = []
    after: int | None = None
    while True:
        page = await store.tasks(TaskFilter(), 500, after)
        found += page.tasks
        if (after := page.after) is None:
            break
    await app.close()
    return found


@pytest.mark.parametrize(
    ("jobs", "kills"), [(60, 3), pytest.param(1_000, 40, marks=pytest.mark.prove)], ids=["60", "1000"]
)
def test_each_job_that_is_done_has_one_row(ledger: Ledger, tmp_path: Path, jobs: int, kills: int) -> None:
    """Rows and jobs are the same, whatever moment a worker dies at.

    A task that loses three workers has failed, which random deaths may do to one: a person retries it, as in life.
    """
    rng, each = random.Random(jobs), jobs // kills
    env = {**os.environ, "EVERPOLL_URL": ledger.url}
    started: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        started.append(WorkerProcess(f"b{len(started)}", tmp_path, env, "faults.bookkeepers:app", "1s"))
        return started[-1]

    def until_at_most(count: int) -> None:
        """Wait until no more than so many tasks are left."""
        live = "everpoll_tasks" if ledger.url.startswith("sqlite") else "everpoll.tasks"
        give_up_at = time.monotonic() + GIVE_UP_S
        while asyncio.run(ask(ledger.url, f"select count(*) from {live}"))[0] > count:  # noqa: S608 - one of two names
            assert time.monotonic() < give_up_at, story_of(started)
            time.sleep(LOOK_S)

    asyncio.run(ask(ledger.url, TABLE))
    crew = [start(), start()]
    try:
        for death in range(kills):
            asyncio.run(enqueue(ledger.url, range(death * each, (death + 1) * each)))
            until_at_most(rng.randrange(each))
            time.sleep(rng.random() * 0.02)
            crew.pop(rng.randrange(2)).kill()
            crew.append(start())
        until_at_most(0)
        while asyncio.run(retried(ledger.url)):
            until_at_most(0)
    finally:
        for worker in crew:
            worker.kill()
    tasks = asyncio.run(ended(ledger.url))
    booked = Counter(asyncio.run(ask(ledger.url, "select number from bookings")))
    assert {task.state for task in tasks} == {"done"}
    assert booked == Counter(range(jobs))
    assert sorted(task.result for task in tasks) == list(range(jobs))
