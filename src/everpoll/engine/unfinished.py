"""Settlements for handlers that returned none: they were stopped, they raised, or they are not registered."""

import logging

from everpoll.engine.failure_events import failure_event
from everpoll.engine.work import Run, StopReason, WorkRegistry
from everpoll.policy.storable_texts import ERROR_LIMIT, storable
from everpoll.stores.contract import Again, Ended, Settlement, encode

logger = logging.getLogger("everpoll.engine")

# Without this delay, the task of a handler that cancels itself would run again a thousand times a second.
CANCELED_REST_S = 1.0
HAND_BACK_REASONS = {
    StopReason.SHUTDOWN: "its worker shuts down",
    StopReason.FENCED: "its worker could not reach the database",
    StopReason.LOST: "its worker was declared dead",
    StopReason.OVERDUE: "its handler did not end at its deadline",
}


def stopped(run: Run) -> Settlement:
    """Settle a task whose handler was canceled: a cancel ends it, any other reason hands it back."""
    lease = run.lease
    if run.stop_reason is StopReason.CANCELED and run.work is not None and run.work.handles_cancel:
        # Its front must do something before the task ends; the next lease carries the request to cancel.
        return Again(lease.id, lease.sequence, 0.0, refund=True)
    if run.stop_reason is StopReason.CANCELED:
        canceled = {"what": "canceled", "attempt": lease.attempt, "why": "canceled while running"}
        return Ended(lease.id, lease.sequence, "canceled", None, encode(canceled), failure_event(canceled))
    why = HAND_BACK_REASONS.get(run.stop_reason) if run.stop_reason else None
    note = encode({"what": "hand-back", "why": why or "its handler was canceled from outside"})
    return Again(lease.id, lease.sequence, None if why else CANCELED_REST_S, refund=True, note=note)


def unknown(run: Run, works: WorkRegistry) -> Settlement:
    """Settle a task whose name is not registered in this worker: a front may keep it, else it fails."""
    lease = run.lease
    if lease.memory is not None and works.on_unregistered_with_memory is not None:
        return works.on_unregistered_with_memory(run)
    known = ", ".join(works.names[:20]) or "nothing"
    error = (
        f"no job called {lease.name!r} is registered in this worker; registered: {known}. If another app has it, give "
        f"the two apps queues of their own in place of {lease.queue!r}"
    )
    logger.error("%s: %s", lease.label, error)
    run.is_logged = True
    note = {"what": "failed", "error": error, "attempt": lease.attempt, "type": "JobNotFound"}
    return Ended(lease.id, lease.sequence, "failed", None, encode(note), failure_event(note))


def broken(run: Run, error: BaseException) -> Settlement:
    """Fail a task whose run raised: a bug of everpoll, since fronts settle every error of a user's function."""
    lease = run.lease
    logger.error("running task %d (%s) failed inside everpoll", lease.id, lease.name, exc_info=error)
    run.is_logged = True
    said = storable(f"{type(error).__name__}: {error}", ERROR_LIMIT)
    note = {"what": "failed", "error": said, "attempt": lease.attempt}
    return Ended(lease.id, lease.sequence, "failed", None, encode(note), failure_event(note))
