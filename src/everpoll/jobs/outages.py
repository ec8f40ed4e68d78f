"""Calls of the store from inside a job: they are repeated as long as the database is away."""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from everpoll.engine.settler import OUTAGE
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Store

T = TypeVar("T")

logger = logging.getLogger("everpoll.jobs")
_rng = random.Random()  # noqa: S311 - jitter, not a secret


async def through_outages(store: Store, ask: Callable[[], Awaitable[T]], problem: str) -> T:
    """Call `ask` until the store answers; a timeout or the engine may cancel this. `problem` is logged."""
    failures = 0
    while True:
        try:
            return await ask()
        except StoreUnavailable as error:
            failures += 1
            delay_s = OUTAGE.delay(failures, _rng)
            level = logging.WARNING if failures == 1 else logging.DEBUG
            logger.log(level, "%s: %s; trying again in %.1f s", problem, error, delay_s)
            await store.back_off(delay_s)
