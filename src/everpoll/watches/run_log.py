"""The log lines of a run: its start, its failures and its end. Lines of one watch are rationed."""

import logging
from typing import TYPE_CHECKING

from everpoll.logs.context import about
from everpoll.policy import human
from everpoll.watches.decisions.events import Fault
from everpoll.watches.memory import Outcome

if TYPE_CHECKING:
    from everpoll.watches.step import Step


def log_start(step: "Step") -> None:
    """Log that the operation was started."""
    step.runtime.changes.log(logging.INFO, f"{step.watch.name} started", "%s: started", step.key)


def log_failure(step: "Step", what: str, text: str, fault: Fault, error: BaseException) -> None:
    """Log that a start, an adoption or a look failed."""
    subject, line = f"{step.watch.name} {what} failed", "%s: %s failed (%s): %s"
    extra = about(error_type=type(error).__name__)
    step.runtime.failures.log(logging.WARNING, subject, line, step.key, what, fault, text, extra=extra)


def log_cleanup_failure(step: "Step", text: str, tries: int) -> None:
    """Log that a cleanup failed."""
    why = f"cleanup failed (try {tries}): {text}"
    step.runtime.failures.log(logging.WARNING, f"{step.watch.name} cleanup failed", "%s: %s", step.key, why)


def log_end(step: "Step", outcome: Outcome) -> None:
    """Log how the run ended."""
    memory, runtime = step.memory, step.runtime
    assert memory.decided_at is not None, "an outcome has its time"
    took_s = 0.0 if memory.begun_at is None else max(0.0, memory.decided_at - memory.begun_at)
    looks = "1 look" if memory.looks == 1 else f"{memory.looks} looks"
    is_bad = outcome in {"failed", "timed_out"}
    (runtime.failures if is_bad else runtime.changes).log(
        logging.ERROR if is_bad else logging.INFO,
        f"{step.watch.name} {outcome}",
        "%s: %s after %s in %s%s",
        step.key,
        outcome.replace("_", " "),
        looks,
        human(took_s),
        f": {memory.reason}" if memory.reason else "",
        extra=about(outcome=outcome, duration_s=round(took_s, 6)),
    )
