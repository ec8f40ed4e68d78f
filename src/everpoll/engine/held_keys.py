"""Keys that an open transaction of another program has taken: an enqueue waits until that has ended.

Promises: no connection is held while it waits, so that others go on. After PATIENCE_S the lock is raised as an error.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from everpoll.drivers.locks import LockHeld
from everpoll.policy import Backoff

T = TypeVar("T")

PATIENCE_S = 30.0
PAUSE = Backoff("20ms", cap="500ms", jitter=0.2, steady=0)

_rng = random.Random()  # noqa: S311 - jitter needs no secrecy


async def retry_while_locked(enqueue: Callable[[], Awaitable[T]]) -> T:
    """Enqueue, again and again while another transaction has the key."""
    event_loop = asyncio.get_running_loop()
    until, failures = event_loop.time() + PATIENCE_S, 0
    while True:
        try:
            return await enqueue()
        except LockHeld:
            if event_loop.time() >= until:
                raise
        failures += 1
        await asyncio.sleep(PAUSE.delay(failures, _rng))
