"""Canceling an operation: reads why the caller canceled the run, and calls the user's `cancel`."""

import logging
from typing import TYPE_CHECKING

from everpoll.watches.decisions.events import CancelReason, CancelSent, Event
from everpoll.watches.decisions.plans import Call

if TYPE_CHECKING:
    from everpoll.watches.step import Step

logger = logging.getLogger("everpoll.watches")


async def cancel(step: "Step", _plan: Call) -> Event:
    """Ask the remote to cancel."""
    assert step.watch.cancel_function is not None, "only planned where there is a cancel"
    await step.call("cancel", step.watch.cancel_function)
    return CancelSent()


async def read_reason(step: "Step", _plan: Call) -> Event:
    """Read the reason of the cancel from the run's trail. If that fails, the cancel goes on without a reason."""
    task_id = step.run.lease.id
    try:
        task = await step.runtime.task(task_id)
    except Exception as error:  # noqa: BLE001 - the cancel goes on without
        logger.warning("watch %r: cannot read why run %d was canceled: %s", step.watch.name, task_id, error)
        return CancelReason()
    said = [entry.get("why") for entry in (task.trail if task is not None else ()) if entry["what"] == "cancel"]
    return CancelReason(said[-1] if said and isinstance(said[-1], str) else None)
