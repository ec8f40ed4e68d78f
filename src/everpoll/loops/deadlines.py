"""Deadlines: any number of them share one timer of the event loop.

Promises: setting a deadline replaces the item's previous one; a deadline that was replaced or cleared never fires;
without deadlines there is no timer. A deadline costs 128 bytes; a `call_later` of its own would cost 216. At most BATCH
deadlines fire in one turn of the event loop, so that many due loops do not block everything else.
"""

import asyncio
import contextvars
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

BATCH = 250
COMPACT_ABOVE = 64
# asyncio fires a timer up to its clock's resolution early; the same tolerance here avoids an empty turn.
TOLERANCE_S = 1e-9


class Timed(Protocol):
    """Something with at most one deadline; `entry` belongs to `Deadlines`."""

    entry: object | None


T = TypeVar("T", bound=Timed)


class Deadlines(Generic[T]):
    """Calls `fire(item, now)` when an item's deadline has come."""

    def __init__(self, event_loop: asyncio.AbstractEventLoop, fire: Callable[[T, float], None]) -> None:
        self._event_loop = event_loop
        self._fire = fire
        self._heap: list[tuple[float, int, T]] = []
        self._sequence = 0
        self._dead = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        # One context for every firing: otherwise a run inherits the context of the last call that moved a deadline.
        self._context = contextvars.copy_context()
        self._firing = False

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def set(self, item: T, due: float | None) -> None:
        """Give the item this deadline in place of any other; None clears it."""
        if item.entry is not None:
            item.entry = None
            self._dead += 1
        if due is not None:
            self._sequence += 1
            item.entry = entry = (due, self._sequence, item)
            heappush(self._heap, entry)
        if not self._firing:
            self._arm()

    def close(self) -> None:
        """Forget every deadline."""
        for entry in self._heap:
            if entry[2].entry is entry:
                entry[2].entry = None
        self._heap.clear()
        self._dead = 0
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the earliest deadline that still counts."""
        heap = self._heap
        while heap and heap[0][2].entry is not heap[0]:
            heappop(heap)
            self._dead -= 1
        if self._dead > COMPACT_ABOVE and self._dead > len(heap) // 2:
            self._heap = heap = [entry for entry in heap if entry[2].entry is entry]
            heapify(heap)
            self._dead = 0
        if self._timer is not None:
            if heap and self._timer_at == heap[0][0]:
                return
            self._timer.cancel()
            self._timer = None
        if heap:
            self._timer_at = heap[0][0]
            self._timer = self._event_loop.call_at(self._timer_at, self._turn, context=self._context)

    def _turn(self) -> None:
        self._timer = None
        self._firing = True
        now = self._event_loop.time()
        try:
            for _ in range(BATCH):
                if not self._fire_first(now):
                    break
        finally:
            self._firing = False
            self._arm()

    def _fire_first(self, now: float) -> bool:
        heap = self._heap
        if not heap or heap[0][0] > now + TOLERANCE_S:
            return False
        entry = heappop(heap)
        due, _, item = entry
        if item.entry is entry:
            item.entry = None
            self._fire(item, max(now, due))
        else:
            self._dead -= 1
        return True
