"""The app that the worker processes run: jobs that write down when they begin, end and are stopped.

A job that is to be in the middle of its work when a fault comes runs until its gate is open: so no fault has to be
timed. A gate is a file, for all who wait at it; another one beside it lets a single run through. Each job returns the
fence it ran under, so that history names the worker of the result.
"""

import asyncio
import os
import time
from pathlib import Path

from everpoll import Everpoll, Task
from faults.effects import EFFECTS, recorded

LEASE, SLOTS = "FAULTS_LEASE", "FAULTS_SLOTS"
LOOK_S = 0.01


async def step(for_s: float, task: Task) -> str:
    """Ordinary work."""
    with recorded(task):
        await asyncio.sleep(for_s)
    return task.fence


async def hold(gate: str, task: Task) -> str:
    """Goes on until the gate is open."""
    with recorded(task):
        while not is_open(gate, task):  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(LOOK_S)
    return task.fence


async def clutch(gate: str, task: Task) -> str:
    """Goes on until the gate is open, and blocks the event loop all the while."""
    with recorded(task):
        while not is_open(gate, task):
            time.sleep(LOOK_S)  # noqa: ASYNC251 - that is its point
    return task.fence


async def block(for_s: float, task: Task) -> str:
    """Blocks the event loop."""
    with recorded(task):
        time.sleep(for_s)  # noqa: ASYNC251 - this is the fault
    return task.fence


async def limited(which: str, gate: str, task: Task) -> str:
    """Goes on until the gate is open; two of each key at a time."""
    return await hold(gate, task)


def is_open(gate: str, task: Task) -> bool:
    """For this run."""
    return Path(gate).exists() or Path(f"{gate}.{task.fence}").exists()


def crew(url: str | None = None) -> Everpoll:
    """An app with these jobs."""
    app = Everpoll(url, lease=os.environ.get(LEASE, "30s"), slots=int(os.environ.get(SLOTS, "4")))
    for function in (step, hold, clutch, block):
        app.job(function)
    app.jobs.add(limited, concurrency=2, per="which")
    return app


app = crew()
__all__ = ["EFFECTS", "LEASE", "SLOTS", "app", "crew"]
