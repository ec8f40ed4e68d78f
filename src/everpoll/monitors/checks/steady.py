"""Steady: a task that must not end goes on after any error of ours.

The engine ends a task as failed whose run raises. A service would not be looked at any more, a mailbox would lose what
waits in it, and an incident its recovery.
"""

import logging
from collections.abc import Awaitable, Callable

from everpoll.engine.work import Run
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Again, Settlement

logger = logging.getLogger("everpoll.monitors")

TROUBLE_S = 5.0
"""How soon it is tried again."""


async def steadily(run: Run, step: Callable[[Run], Awaitable[Settlement]], what: str) -> Settlement:
    """Run a step; whatever it raises, the task is due again a little later."""
    lease = run.lease
    try:
        return await step(run)
    except StoreUnavailable as error:
        logger.warning("%s %r: %s; trying again", what, lease.key, error)
    except Exception:
        logger.exception("%s %r: failed inside everpoll; trying again", what, lease.key)
    return Again(lease.id, lease.sequence, TROUBLE_S, refund=True)
