"""Asks the cadence of a watch how long to wait for the next look.

Promises: if a cadence of the user raises, or returns anything but seconds, this is logged and the fallback
decides, so that the verdict of the look is not lost. Random numbers come from the runtime's generator.
"""

import logging
import math
from copy import copy
from typing import TYPE_CHECKING

from everpoll.engine.calls import failure
from everpoll.errors import BadInput
from everpoll.policy import shown
from everpoll.watches.decisions.events import Pace
from everpoll.watches.decisions.spans import mark_progress
from everpoll.watches.limits import error_text, short_text
from everpoll.watches.memory import RunMemory
from everpoll.watches.options import FALLBACK

if TYPE_CHECKING:
    from everpoll.watches.step import Step

logger = logging.getLogger("everpoll.watches")


def pace_at_start(step: "Step") -> Pace:
    """Return the wait before the first look."""
    memory = copy(step.memory)
    memory.started_at = None
    return _pace(step, memory, memory.looks)


def pace_after_look(step: "Step", progress: float | None) -> Pace:
    """Return the wait before the next look, given the share of progress that this look reported."""
    memory = step.memory
    if progress is not None:
        memory = copy(memory)
        mark_progress(memory, progress, step.now())
    return _pace(step, memory, memory.looks)


def pace_after_failure(step: "Step", *, before_call: bool) -> Pace:
    """Return the wait after a look that failed; one that failed before its call was not counted yet."""
    return _pace(step, step.memory, step.memory.looks + before_call)


def _pace(step: "Step", memory: RunMemory, looks: int) -> Pace:
    # If the operation was started elsewhere, the first look comes at once, and the first wait after that look.
    looks = max(0, looks - memory.started_elsewhere)
    learning, rng, kind = step.runtime.learning, step.runtime.rng, None
    try:
        kind = learning.kind_of(step.op)
        wait_s, why = learning.next_wait(kind, looks, memory, step.now(), rng)
        if isinstance(wait_s, (int, float)) and 0 <= wait_s <= math.inf:
            return Pace(float(wait_s), None, why, kind or None)
        raise BadInput(f"next_s returned {shown(wait_s)}; it returns seconds, 0 or more")
    except BaseException as raised:  # noqa: BLE001 - the user's own
        error = error_text(failure(step.run, raised))
        logger.error("%s: its cadence failed, the fallback decides: %s", step.key, error)
        return Pace(FALLBACK.delay(looks + 1, rng), short_text(error), None, kind or None)
