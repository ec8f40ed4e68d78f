"""Run or retry: keeps a task alive when its run raises an unexpected error.

The engine ends a task as failed when its run raises. That would end the looks at a service, lose the notices of a
mailbox, and lose the recovery of an incident.
"""

import logging
from collections.abc import Awaitable, Callable

from everpoll.engine.work import Run
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Again, Settlement

logger = logging.getLogger("everpoll.monitors")

TROUBLE_S = 5.0
"""How soon the task is due again after an error."""


async def run_or_retry(run: Run, step: Callable[[Run], Awaitable[Settlement]], what: str) -> Settlement:
    """Run a step. If it raises, log the error and make the task due again after TROUBLE_S."""
    lease = run.lease
    try:
        return await step(run)
    except StoreUnavailable as error:
        logger.warning("%s %r: %s; trying again", what, lease.key, error)
    except Exception:
        logger.exception("%s %r: failed inside everpoll; trying again", what, lease.key)
    return Again(lease.id, lease.sequence, TROUBLE_S, refund=True)
