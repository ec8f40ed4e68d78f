"""Turns an exception of a user's function into an event, counts it at the remote's breaker, and logs it."""

import logging
from typing import TYPE_CHECKING

from everpoll.engine.calls import described
from everpoll.http.retry_after import retry_after_s
from everpoll.watches.decisions.events import Broken, Calls, Failed, Fault, Postponed
from everpoll.watches.faults import fault_of
from everpoll.watches.limits import error_text
from everpoll.watches.pacing import pace_after_failure
from everpoll.watches.run_log import log_cleanup_failure, log_failure

if TYPE_CHECKING:
    from everpoll.watches.step import Step

logger = logging.getLogger("everpoll.watches")


def failed(step: "Step", what: Calls, error: BaseException, *, before_call: bool = False) -> Failed:
    """Classify, count and log a failure of a call."""
    memory, text, fault = step.memory, error_text(error), _fault(step, error)
    is_look = what in {"look", "verify"}
    context = step.context if is_look else None
    report = None
    if context is not None:
        report = context.report(has_failed=True)
        context.detach()
    if memory.outcome is not None:
        log_cleanup_failure(step, text, memory.cleanup_tries)
    elif not step.is_canceling:
        log_failure(step, "start" if memory.phase == "intent" else "look" if is_look else what, text, fault, error)
    pace = breaker_wait = None
    if is_look and not step.is_canceling:
        pace = pace_after_failure(step, before_call=before_call)
    if step.remote is not None:
        breaker_wait = _report_to_breaker(step, step.remote, fault, None if context is None else context.call)
    return Failed(
        what,
        text,
        fault,
        None if fault == "transient" else described(error),
        retry_after_s(error),
        breaker_wait,
        before_call,
        report=report,
        pace=pace,
        took_s=step.look_took_s,
        remote=step.named_remote,
    )


def broken(step: "Step", error: BaseException) -> Broken:
    """Classify and log a failure of everpoll itself."""
    lease, text = step.run.lease, error_text(error)
    if step.memory.outcome is not None:
        log_cleanup_failure(step, text, step.memory.cleanup_tries + 1)
    fault = _fault(step, error)
    return Broken(text, fault, described(error), retry_after_s(error), lease.sequence, lease.cancel_requested)


def _report_to_breaker(step: "Step", remote: str, fault: Fault, call: int | None) -> Postponed | None:
    """Count the call at the remote's breaker; return how long to wait if the breaker is open now."""
    remotes = step.runtime.remotes
    if fault == "transient":
        return remotes.failed(remote, step.now(), call)
    remotes.answered(remote)
    return None


def _fault(step: "Step", error: BaseException) -> Fault:
    try:
        return fault_of(error, step.watch.policy.rules)
    except Exception as wrong:  # noqa: BLE001 - the user's own rule, or an attribute of a library's error
        logger.error("%s: cannot classify %s: %s", step.key, type(error).__name__, error_text(wrong))
        return "unexpected"
