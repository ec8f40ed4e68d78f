"""Rate-limited log: a number of lines in each period, and one line that counts the rest.

    within the limit: logged ──limit used up──▶ withheld: counted, and logged at debug level
                                                     └──end of the period──▶ one line: how many more, about what

Promises: at most `lines` lines and one more in each WINDOW_S, however many are asked for; the line that counts the
others has the highest level among them. A log at debug level has every line. Used in one event loop.
"""

import asyncio
import logging
from collections import Counter
from typing import Any

from everpoll.policy import human

WINDOW_S = 10.0
LINES = 1_000
"""How many lines are logged in each period."""
SUBJECTS = 100
SHOWN = 5
OTHERS = "others"


class RateLimitedLog:
    """Lines of one logger that share a limit."""

    def __init__(self, logger: logging.Logger, lines: int = LINES) -> None:
        self.logger = logger
        self._lines = lines
        self._left = 0
        self._ends_at = float("-inf")
        self._withheld: Counter[str] = Counter()
        self._level = logging.DEBUG
        self._timer: asyncio.TimerHandle | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def log(self, level: int, subject: str, message: str, *args: object, **options: Any) -> None:
        """Log a line, or count it; `subject` names it in the line that counts."""
        if not self.logger.isEnabledFor(level):
            return
        event_loop = asyncio.get_running_loop()
        now = event_loop.time()
        if event_loop is not self._event_loop or now >= self._ends_at:
            self.flush()
            self._event_loop, self._ends_at, self._left = event_loop, now + WINDOW_S, self._lines
        if self._left > 0:
            self._left -= 1
            self.logger.log(level, message, *args, **options)
            return
        self.logger.debug(message, *args, **options)
        self._withheld[subject if subject in self._withheld or len(self._withheld) < SUBJECTS else OTHERS] += 1
        self._level = max(self._level, level)
        if self._timer is None:
            self._timer = event_loop.call_at(self._ends_at, self.flush)

    def flush(self) -> None:
        """Log what was withheld, as one line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._withheld:
            return
        withheld, level = self._withheld, self._level
        self._withheld, self._level = Counter(), logging.DEBUG
        subjects = ", ".join(f"{subject} {count:,}" for subject, count in withheld.most_common(SHOWN))
        more = ", …" if len(withheld) > SHOWN else ""
        text = "%s more lines within %s, each logged at debug level: %s%s"
        self.logger.log(level, text, f"{withheld.total():,}", human(WINDOW_S), subjects, more)
