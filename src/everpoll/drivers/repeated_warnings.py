"""Warnings of a loop that tries again and again: logged at once, then once a minute, and once when it works again.

    working ──failure: logged──▶ failing ──success: "… works again"──▶ working
                                  │   ▲
                                  └───┘ failure: logged if its reason is new, or once a minute with a count

Promises: an outage of any length costs at most REASONS lines for its different reasons, one line a minute, and one at
its end. A log at debug level has every failure. Used by one thread at a time.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from everpoll.policy import human

EVERY_S = 60.0
REASONS = 5
"""How many different reasons of one outage are logged at once: a text with a port or a time in it is always new."""

STEADY_S = 10.0
"""If it works for a shorter time than this and fails again, the log treats that as one outage."""


def event_loop_time() -> float:
    """Return the time of the running event loop; under virtual time that is the virtual time."""
    return asyncio.get_running_loop().time()


class RepeatedWarnings:
    """The warnings of one loop; `what` is its name in the line "… works again"."""

    def __init__(self, logger: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._what = what
        self._clock = clock
        self._reasons: set[str] = set()
        self._failures = 0
        """Failures since it last worked."""
        self._unlogged = 0
        self._has_logged = False
        """Whether one of these failures was logged."""
        self._since = 0.0
        self._logged_at = self._worked_at = float("-inf")

    def failed(self, error: object, message: str, *args: object, level: int = logging.WARNING) -> None:
        """Log the message, or count it. `error` is the reason; above a warning its traceback is logged with it."""
        now = self._clock()
        if not self._failures:
            self._begin(now)
        self._failures += 1
        if not self._is_new(error) and now - self._logged_at < EVERY_S:
            self._unlogged += 1
            self._logger.debug(message, *args)
            return
        if self._unlogged:
            message += " (%d more in the last %s)"
            args = (*args, self._unlogged, human(round(now - self._logged_at)))
        self._unlogged, self._logged_at, self._has_logged = 0, now, True
        self._logger.log(level, message, *args, exc_info=level > logging.WARNING)

    def works(self) -> None:
        """Log that it works again, if a failure was logged."""
        if not self._failures:
            return
        now, failures, had_logged = self._clock(), self._failures, self._has_logged
        self._failures, self._has_logged, self._worked_at = 0, False, now
        if had_logged:
            times = "1 failure" if failures == 1 else f"{failures} failures"
            self._logger.info("%s works again after %s in %s", self._what, times, human(round(now - self._since, 1)))

    def _begin(self, now: float) -> None:
        self._since = now
        if now - self._worked_at >= STEADY_S:
            self._reasons.clear()
            self._unlogged = 0

    def _is_new(self, error: object) -> bool:
        reason = f"{type(error).__name__}: {error}"
        if reason in self._reasons or len(self._reasons) >= REASONS:
            return False
        self._reasons.add(reason)
        return True
