"""Rows that the user's own table refuses to have changed: a trigger that raises, a constraint that was added.

Promises: such a row does not hold up others and is not tried again and again: it is left alone for a minute, and logged
once in that time. Never more than `LIMIT` are remembered; beyond that, the oldest are tried again sooner.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("everpoll.tables")

REST_S = 60.0
LIMIT = 1_000


class Refusals:
    """What one table has refused lately, to one purpose: `claimed`, `kept alive`, `handed back`."""

    def __init__(self, table: str, purpose: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._purpose = purpose
        self._clock = clock
        self._until: dict[Any, float] = {}

    def known(self) -> set[Any]:
        """Return the keys of rows that must be left alone for now."""
        if not self._until:
            return set()
        now = self._clock()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return set(self._until)

    def add(self, key: Any, error: Exception) -> None:
        """Note that the database refused to change this row."""
        if key in self.known():
            return
        if len(self._until) >= LIMIT:
            del self._until[next(iter(self._until))]
        self._until[key] = self._clock() + REST_S
        logger.error(
            "table %s: row %s cannot be %s, the table refuses it: %s; it is left alone for %g s",
            self._table,
            key,
            self._purpose,
            error,
            REST_S,
        )
