"""The app of workers that run chains and groups: jobs that take a moment, so that a kill comes at any of them."""

import asyncio
import os
import random
from typing import Any

from everpoll import Everpoll, Group

PAUSE_S = 0.004

url = os.environ.get("EVERPOLL_URL", "sqlite:///unused.db")
app = Everpoll(url, lease="3s", slots=4)
_rng = random.Random()


@app.job()
async def step(number: int) -> int:
    await asyncio.sleep(_rng.random() * PAUSE_S)
    return number + 1


@app.job()
async def report(group: Group, total: int) -> dict[str, Any]:
    """Say what it found when it ran: no member may have been on its way."""
    info = await group.info()
    await asyncio.sleep(_rng.random() * PAUSE_S)
    return {"total": total, "ended": info.ended, "live": info.queued + info.running}
