"""Repeats statements that Postgres rolled back because of another transaction; their callers never notice.

Promises: only what Postgres has rolled back as a whole (a deadlock, a serialization failure) is repeated, up to TRIES
times; then the error is raised. Never: repeats a statement whose outcome is unknown.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from everpoll.errors import StoreUnavailable
from everpoll.policy import Backoff

T = TypeVar("T")

ROLLED_BACK = ("40001", "40P01")
TRIES = 5
PAUSE = Backoff("5ms", cap="100ms", jitter=0.5, steady=0)

_rng = random.Random()  # noqa: S311 - spreads rivals, no secret


async def repeated(statement: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to the statement; run it again if another transaction made Postgres roll it back."""
    for failures in range(1, TRIES):
        try:
            return await statement()
        except StoreUnavailable as error:
            if getattr(error.__cause__, "sqlstate", None) not in ROLLED_BACK:
                raise
        await asyncio.sleep(PAUSE.delay(failures, _rng))
    return await statement()
