"""The app of workers in a storm of faults: jobs with limits and rates, groups with callbacks, and a schedule.

Every job writes down when it begins and how it is over (`faults.effects`). A callback also writes a row and ends in one
transaction of its own: a callback that took effect twice has two rows.
"""

import asyncio
import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psycopg

from everpoll import Everpoll, Group, Rate, Task
from faults.effects import recorded

LEASE = "STORM_LEASE"
LIMIT = 2
"""Tasks of one key at a time."""
STARTS, PER_S = 3, 0.5
"""Starts of one key in any stretch of so many seconds."""
SLOTS = 8
TICK_S = 1.0
PAUSE_S = 0.2
LOOK_S = 0.01
CALLBACKS = "create table callbacks (id bigint not null)"


async def limited(which: str, gate: str, task: Task) -> None:
    """Take a moment; with a gate, until that file is there."""
    with recorded(task):
        await asyncio.sleep(random.random() * PAUSE_S)
        while gate and not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process opens it
            await asyncio.sleep(LOOK_S)


async def paced(which: str, task: Task) -> None:
    with recorded(task):
        await asyncio.sleep(random.random() * PAUSE_S)


async def member(number: int, task: Task) -> int:
    with recorded(task):
        await asyncio.sleep(random.random() * PAUSE_S)
    return number + 1


def callback(task: Task, group: Group) -> None:
    """Write a row and end, in one transaction."""
    with recorded(task):
        url = os.environ["EVERPOLL_URL"]
        time.sleep(random.random() * PAUSE_S)
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as file, file:
                file.execute("insert into callbacks values (?)", [task.id])
                task.sync.complete(connection=file)
        else:
            with psycopg.connect(url) as connection:
                connection.execute("insert into callbacks values (%s)", [task.id])
                task.sync.complete(connection=connection)
        time.sleep(random.random() * PAUSE_S)


async def tick(task: Task) -> None:
    with recorded(task):
        await asyncio.sleep(random.random() * PAUSE_S)


def storm(url: str | None = None) -> Everpoll:
    """An app with these jobs and the schedule."""
    app = Everpoll(url, lease=os.environ.get(LEASE, "30s"), slots=SLOTS)
    app.jobs.add(limited, concurrency=LIMIT, per="which")
    app.jobs.add(paced, rate=Rate(STARTS, per=PER_S), per="which")
    app.jobs.add(member)
    app.jobs.add(callback)
    app.schedules.add(app.jobs.add(tick), every=TICK_S, missed="all")
    return app


app = storm()
