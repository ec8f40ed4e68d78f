"""What the memory store holds, and the few moves that its parts share. Everything happens under one lock."""

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any

from everpoll.drivers.wake import OnWake, Wake
from everpoll.policy import Clock
from everpoll.stores.contract import EndState
from everpoll.stores.memory.feed import Feed
from everpoll.stores.memory.lines import Lines
from everpoll.stores.memory.rows import TaskRow, WorkerRow
from everpoll.stores.memory.shelves import Shelves
from everpoll.stores.operations import Pause


class SystemClock:
    """The clocks of this machine."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class MemoryState:
    """Tasks, workers, events and listeners."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        # A thread's heart knows nothing of a virtual clock, which would run on while it beats.
        self.beats_in_loop = clock is not None
        """Under a virtual clock the heartbeat belongs into the event loop, whose time that is."""
        # The wall clock names the instants, the monotonic one moves them: a step of the former changes nothing.
        self._epoch = self._clock.wall() - self._clock.now()
        self._lock = threading.RLock()
        self._shelves = Shelves()
        self._lines = Lines(self._shelves.live)
        self._feed = Feed()
        self._workers: dict[int, WorkerRow] = {}
        self._losses: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self._pauses: dict[str, Pause] = {}
        self._listeners: list[tuple[asyncio.AbstractEventLoop, OnWake]] = []

    def _again(self, row: TaskRow, delay_s: float | None) -> None:
        row.state, row.incarnation, row.deadline_at = "queued", None, None
        self._lines.starts.ended(row.id, row.new.limit)
        row.due_at = row.due_at if delay_s is None else self._now() + delay_s
        self._lines.add(row, self._now())

    def _end(self, row: TaskRow, state: EndState) -> None:
        self._shelves.end(row, state, self._now())
        self._lines.starts.ended(row.id, row.new.limit)

    def _now(self) -> float:
        return self._epoch + self._clock.now()

    def _wake(self, *, cancel: bool = False, due_s: float = 0.0) -> None:
        for event_loop, on_wake in self._listeners:
            if not event_loop.is_closed():
                event_loop.call_soon_threadsafe(on_wake, Wake(cancel, due_s))
