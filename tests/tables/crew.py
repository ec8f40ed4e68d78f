"""The app that worker processes run: one adopted table, whose handler writes down when it begins, ends and is stopped.

A row whose payload is a path is in the middle of its work until that file is there: so no fault has to be timed.
"""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from everpoll import Everpoll
from everpoll.tables import Row, Table
from tables.stages import QUICK

URL, TOKEN, MAPPING, SLOTS, EFFECTS = ("CREW_URL", "CREW_TOKEN", "CREW_MAPPING", "CREW_SLOTS", "CREW_EFFECTS")
LOOK_S = 0.01


async def work(row: Row) -> None:
    """One row."""
    tell(row, "began")
    over = "stopped"
    try:
        gate = row["payload"]
        if gate == "raise":
            raise RuntimeError("it broke")
        while gate and not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process opens it
            await asyncio.sleep(LOOK_S)
        over = "ended"
    finally:
        tell(row, over)


def tell(row: Row, what: str) -> None:
    """One line, one write: lines of several processes never mix, and one that was written survives kill -9."""
    entry = {"what": what, "key": str(row.id), "attempt": row.attempt, "worker": os.environ["WORKER_ID"]}
    descriptor = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(descriptor)


def crew() -> Everpoll:
    """As the environment says."""
    options: dict[str, Any] = json.loads(os.environ[MAPPING])
    app = Everpoll("memory://")
    adopted = app.table(
        Table(**options), slots=int(os.environ[SLOTS]), url=os.environ[URL], token=os.environ.get(TOKEN) or None
    )
    adopted._options = replace(adopted._options, poll=QUICK, safety_poll=QUICK)
    adopted.handler(work)
    return app


app = crew() if URL in os.environ else None
