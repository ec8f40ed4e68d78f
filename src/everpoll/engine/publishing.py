"""Publishing: a worker writes its figures, and the loops of its process, after a heartbeat.

Promises: one more statement, and only if something has changed. After a failure, a later beat publishes the same
figures. A failure affects neither this beat nor the next one.
"""

import logging
from collections.abc import Callable, Sequence

from everpoll.drivers.repeated_warnings import RepeatedWarnings
from everpoll.engine.tally import Tally
from everpoll.stores.contract import HeartbeatConnection, encode
from everpoll.stores.figures import LoopCard

logger = logging.getLogger("everpoll.engine")

LOOPS_LIMIT = 200

Cards = Callable[[], Sequence[LoopCard]]


class Publisher:
    """Publishes the figures of one worker, and the loops of its process where `loops` gives them.

    `now` is the store's clock, as far as it is known here.
    """

    def __init__(self, tally: Tally, now: Callable[[], float], loops: Cards | None = None) -> None:
        self._tally = tally
        self._now = now
        self._loops = loops
        self._incarnation = 0
        self._published_loops = "[]"
        self._warnings = RepeatedWarnings(logger, "publishing figures")

    def begin(self, incarnation: int) -> None:
        """Publish for this incarnation from now on."""
        self._incarnation = incarnation
        self._published_loops = "[]"
        self._tally.begin(incarnation, self._now())

    def publish(self, connection: HeartbeatConnection) -> None:
        """Publish what has changed."""
        try:
            self._publish(connection.publish)
        except Exception as error:  # noqa: BLE001 - the next beat tries again
            self._warnings.failed(error, "cannot publish figures: %s: %s; trying again", type(error).__name__, error)
        else:
            self._warnings.works()

    def _publish(self, publish: Callable[..., None]) -> None:
        figures = self._tally.unpublished(self._now())
        loops = self._changed_loops()
        if figures is not None:
            for incarnation, some in figures.by_incarnation.items():
                publish(incarnation, some, None)
            self._tally.published(figures)
        if loops is not None:
            publish(self._incarnation, (), loops)
            self._published_loops = loops

    def _changed_loops(self) -> str | None:
        """Return the loops as JSON if they have changed since they were published, else None."""
        if self._loops is None:
            return None
        text = encode(self._loops()[:LOOPS_LIMIT])
        return None if text == self._published_loops else text
