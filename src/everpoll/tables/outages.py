"""Outages that a table's workers may share: after one, rows that look stale are left alone for the time of a beat.

What cuts one worker off (a database that is away, a file that is kept locked, a machine that is paused, a clock that
steps) cuts off the others as well, and all their rows look stale. A worker that notices that its own last beat is that
long ago waits for one whole beat interval, counted from its first beat that got through: by then every live worker has
been heard again.
"""

import time
from collections.abc import Callable

from everpoll.tables.mapping import Table


class Outages:
    """Remembers when the table was last written to, over all connections of a table in this process."""

    def __init__(
        self, table: Table, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        every_s = table.heartbeat_every_s
        # A shorter silence cannot make another worker look dead, whose last beat before was up to one interval ago.
        self._limit_s = max(table.stale_after_s - every_s, 1.5 * every_s)
        self._every_s = every_s
        self._clocks = (steady, wall)
        self._heard: tuple[float, float] | None = None
        self._trusts_at = steady()

    def heard(self) -> bool:
        """Note that a write to the table has just succeeded; return whether stale rows may be taken back."""
        steady, wall = (clock() for clock in self._clocks)
        last, self._heard = self._heard, (steady, wall)
        if last is not None and max(steady - last[0], wall - last[1]) > self._limit_s:
            self._trusts_at = steady + self._every_s
        return steady >= self._trusts_at
