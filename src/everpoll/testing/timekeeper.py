"""Timekeeper: moves virtual time when the event loop has nothing left to run.

    idle ──a timer is next──────────────────▶ now = its due time
    idle ──an advance() is next─────────────▶ now = its target, and the caller goes on
    idle ──neither──────────────────────────▶ stuck: only real I/O could help

Promises: `now` never goes backwards, and stops at every due time on the way; timers fire before an `advance` that ends
at the same instant returns. Never reads a real clock, and uses no private part of asyncio.
"""

import asyncio
import heapq
import itertools
import math
from typing import NamedTuple

# A loop that polls every 0 s would stop virtual time for ever. A million rounds take seconds of real time, and a test
# that waits for time does not need so many.
ROUNDS_LIMIT = 1_000_000

# Twenty sleeps of 0.1 s end at 2.0000000000000004. A test that advances by 2 s expects the twentieth, too, so a target
# reaches a nanosecond further, as timers of asyncio do.
_REACH_S = 1e-9


class _Target(NamedTuple):
    """Sorted by instant, then by the order of the calls."""

    at: float
    turn: int
    last_due: float
    reached: asyncio.Future[None]


class Timekeeper:
    """The virtual now, and the instants that callers wait for."""

    def __init__(self, start: float) -> None:
        self.now = start
        self._rounds = 0
        self._order = itertools.count()
        self._targets: list[_Target] = []

    def move_to(self, instant: float) -> None:
        """Set the time to `instant`, unless that lies in the past."""
        if instant > self.now:
            # A plain float, because readers of the clock may encode it as JSON: a timer's due time has a type of its
            # own.
            self.now = float(instant)
            self._rounds = 0

    async def pass_by(self, delay_s: float) -> None:
        """Return when that much time has passed and everything due until then has settled."""
        at = self.now + delay_s
        last_due = at + max(_REACH_S, 4 * math.ulp(at)) if delay_s else at
        reached = asyncio.get_running_loop().create_future()
        heapq.heappush(self._targets, _Target(at, next(self._order), last_due, reached))
        await reached

    def move_on(self, next_due: float) -> bool:
        """Move time to the next timer or target; return False if there is none."""
        target = self._next_target()
        if math.isfinite(next_due) and (target is None or next_due <= target.last_due):
            self.move_to(next_due)
            return True
        if target is None:
            return False
        self.move_to(target.at)
        heapq.heappop(self._targets).reached.set_result(None)
        return True

    def restart_rounds(self) -> None:
        """Count rounds from 0 again: input from outside has come, so earlier rounds prove nothing."""
        self._rounds = 0

    def is_racing(self, next_due: float) -> bool:
        """Count a round in which time did not move; return True after too many of them while a caller waits."""
        self._rounds += 1
        if self._rounds <= ROUNDS_LIMIT:
            return False
        self._rounds = 0
        return math.isfinite(next_due) or self._next_target() is not None

    def abandon(self, error: Exception) -> None:
        """Raise this error in all callers that wait, because time will not move any more."""
        for target in self._targets:
            if not target.reached.done():
                target.reached.set_exception(error)
        self._targets.clear()

    def _next_target(self) -> _Target | None:
        while self._targets and self._targets[0].reached.done():
            heapq.heappop(self._targets)
        return self._targets[0] if self._targets else None
