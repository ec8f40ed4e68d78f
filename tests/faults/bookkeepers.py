"""The app of workers that book a row and end their job in one transaction of their own.

The table has no unique column: a job that took effect twice has two rows. A job pauses inside its transaction and after
its commit, so that a kill comes at any of these moments.
"""

import asyncio
import os
import random
import sqlite3
import time
from contextlib import closing

import asyncpg
import psycopg

from everpoll import Everpoll, Task

TABLE = "create table if not exists bookings (number integer not null)"
PAUSE_S = 0.004

url = os.environ.get("EVERPOLL_URL", "sqlite:///unused.db")
app = Everpoll(url, lease="3s", slots=4)
_rng = random.Random()


def pause_s() -> float:
    return _rng.random() * PAUSE_S


@app.job()
async def book(number: int, task: Task) -> None:
    """Through asyncpg."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("insert into bookings values ($1)", number)
            await asyncio.sleep(pause_s())
            await task.complete(number, connection=connection)
            await asyncio.sleep(pause_s())
        await asyncio.sleep(pause_s())
    finally:
        await connection.close()


@app.job()
def book_plainly(number: int, task: Task) -> None:
    """Through psycopg, or sqlite3: in a thread."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as file, file:
            file.execute("insert into bookings values (?)", [number])
            time.sleep(pause_s())
            task.sync.complete(number, connection=file)
    else:
        with psycopg.connect(url) as connection:
            connection.execute("insert into bookings values (%s)", [number])
            time.sleep(pause_s())
            task.sync.complete(number, connection=connection)
    time.sleep(pause_s())
