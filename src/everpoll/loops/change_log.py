"""Logs changes of a loop's state, each once. Ordinary runs are logged at debug level only."""

import logging

from everpoll.logs.context import Fields, about
from everpoll.loops.state import Life, LoopState, Phase
from everpoll.policy import PauseReason, human

logger = logging.getLogger("everpoll.loops")


def log_changes(name: str, before: LoopState, after: LoopState, now: float) -> None:
    """Log the change between two snapshots, if an operator wants to know it."""
    if after.failures > before.failures:
        text, extra = "loop %r failed: %s (failures: %d, next run %s)", _about(name)
        logger.warning(text, name, after.last_error, after.failures, _next(after, now), extra=extra)
    elif before.failures and not after.failures and after.last_ok != before.last_ok:
        count = "1 failure" if before.failures == 1 else f"{before.failures} failures"
        logger.info("loop %r recovered after %s, next run %s", name, count, _next(after, now), extra=_about(name))
    # An app that shuts down pauses every loop: that is not worth a line per loop.
    ending = PauseReason.SHUTDOWN in after.pauses | before.pauses
    if after.held != before.held and after.life is Life.LIVE and not ending:
        # Compare the reasons, not the phase: a loop that is paused during a run still has the phase "running".
        word = Phase.PAUSED if after.held else after.phase
        logger.info("loop %r is %s, next run %s", name, word.value, _next(after, now), extra=_about(name))
        return
    # Waiting and running in turn is the ordinary case and must cost next to nothing.
    ordinary = after.life is before.life and after.held == before.held and after.breaker is before.breaker
    if ordinary and not logger.isEnabledFor(logging.DEBUG):
        return
    old, new = before.phase, after.phase
    if old is new or ending:
        return
    if new is Phase.OPEN:
        logger.warning("loop %r: breaker opened, one probe %s", name, _next(after, now), extra=_about(name))
    elif new is Phase.STOPPED:
        logger.info("loop %r stopped: %s", name, after.stop_reason, extra=_about(name))
    elif logger.isEnabledFor(logging.DEBUG):
        logger.debug("loop %r: %s → %s, next run %s", name, old.value, new.value, _next(after, now), extra=_about(name))


def _about(name: str) -> dict[str, Fields]:
    return about(kind="loop", name=name)


def _next(state: LoopState, now: float) -> str:
    if state.overran:
        return "once its thread has returned"
    return "not scheduled" if state.next_due is None else f"in {human(max(0.0, state.next_due - now))}"
