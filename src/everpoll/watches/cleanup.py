"""Cleaning up after an operation: calls the user's `cleanup`, once the outcome is committed."""

from typing import TYPE_CHECKING

from everpoll.watches.decisions.events import Cleaned, Event
from everpoll.watches.decisions.plans import Call

if TYPE_CHECKING:
    from everpoll.watches.step import Step


async def cleanup(step: "Step", _plan: Call) -> Event:
    """Remove what the operation left at the remote."""
    assert step.watch.cleanup_function is not None, "only planned where there is a cleanup"
    await step.call("cleanup", step.watch.cleanup_function)
    return Cleaned()
