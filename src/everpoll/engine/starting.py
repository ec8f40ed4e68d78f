"""Starting: an app starts as soon as its database can be reached; until then, its health has the reason."""

import logging
from collections.abc import Awaitable, Callable

from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.engine.settler import OUTAGE
from everpoll.errors import CannotConnect, StoreUnavailable
from everpoll.policy import human

logger = logging.getLogger("everpoll")


class Starting:
    """The start of one app."""

    def __init__(self) -> None:
        self.error: str | None = None
        """Why the last try failed; None: it succeeded, or there was none."""

    async def when_possible(
        self, start: Callable[[], Awaitable[None]], back_off: Callable[[float], Awaitable[None]]
    ) -> None:
        """Start, and retry while the database is unreachable. A wrong address raises `CannotConnect` at once."""
        failures, warnings = 0, RepeatedWarnings(logger, "starting", event_loop_time)
        while True:
            try:
                await start()
            except CannotConnect:
                raise
            except StoreUnavailable as error:
                failures += 1
                self.error = str(error)
                delay_s = OUTAGE.delay(failures)
                warnings.failed(error, "cannot start: %s; trying again in %s", error, human(delay_s))
                await back_off(delay_s)
            else:
                self.error = None
                warnings.works()
                return
