"""The competitor's end of the wire: see bench/arm.py. Standard library only: it runs in every environment."""

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Order = dict[str, Any]
Bench = Callable[[Order], Awaitable[None]]

ARGS: tuple[str, int, list[str]] = (
    "https://example.com/some/path/to/a/page?of=medium&length=60",
    12_345_678,
    ["a", "b"],
)
"""What every job is called with: about 100 bytes as JSON."""
PAYLOAD = json.dumps(ARGS)

_pauses = random.Random(7)

# Whatever a library prints must not be taken for an answer.
_wire = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def ready() -> None:
    """Wait for the order to go on, once everything is set up. Blocks the event loop: nothing may be under way."""
    _wire.write('{"is_ready": true}\n')
    _wire.flush()
    sys.stdin.readline()


async def ready_meanwhile() -> None:
    """The same, while the event loop goes on."""
    await asyncio.to_thread(ready)


async def report(**figures: Any) -> None:
    """Answer, and stay until the next order: the CPU time of our sessions is read meanwhile."""
    _wire.write(json.dumps(figures) + "\n")
    _wire.flush()
    await asyncio.to_thread(sys.stdin.readline)


def pause_s(order: Order) -> float:
    """How long to wait before the next job: up to a quarter longer than ordered.

    With the same pause each time, all jobs of a run meet a worker that looks every 20 ms at the same place of its rest.
    """
    return float(order["every_s"]) * (1.0 + _pauses.random() / 4.0)


def main(benches: dict[str, Bench]) -> None:
    """Do what the command line orders."""
    order: Order = json.loads(sys.argv[1])
    work = benches[order["bench"]](order)
    if order.get("loop") == "uvloop":
        import uvloop  # type: ignore[import-not-found]  # noqa: PLC0415 - in the peers' environments only

        uvloop.run(work)
    else:
        asyncio.run(_awaited(work))


async def _awaited(work: Awaitable[None]) -> None:
    await work
