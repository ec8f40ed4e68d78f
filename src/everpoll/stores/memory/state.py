"""The state of a memory store, and the changes of it that its parts share. Everything happens under one lock."""

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any

import msgspec

from everpoll.drivers.wake import OnWake, Wake
from everpoll.policy import Clock
from everpoll.stores.contract import EndState, NewEvent, encode
from everpoll.stores.flows import Blocked, Link, apply_ends, cause_of, with_input
from everpoll.stores.memory.feed import Feed
from everpoll.stores.memory.lines import Lines
from everpoll.stores.memory.rows import TaskRow, WorkerRow
from everpoll.stores.memory.task_index import TaskIndex
from everpoll.stores.operations import UNNUMBERED, Pause


class SystemClock:
    """The clocks of this machine."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class MemoryState:
    """Tasks, workers, events and listeners."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        # A heartbeat thread would run in real time, while a virtual clock jumps ahead of it.
        self.beats_in_loop = clock is not None
        """Under a virtual clock the heartbeat runs in the event loop, which has that clock."""
        # The wall clock is read once; the monotonic clock measures from there, so a step of the wall clock has no
        # effect.
        self._epoch = self._clock.wall() - self._clock.now()
        self._lock = threading.RLock()
        self._last_id = 0
        self._index = TaskIndex()
        self._lines = Lines(self._index.live)
        self._feed = Feed()
        self._workers: dict[int, WorkerRow] = {}
        self._losses: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self._pauses: dict[str, Pause] = {}
        self._members: defaultdict[int, list[int]] = defaultdict(list)
        """The tasks that each task waits for, or waited for."""
        self._listeners: list[tuple[asyncio.AbstractEventLoop, OnWake]] = []

    def _again(self, row: TaskRow, delay_s: float | None) -> None:
        row.state, row.incarnation, row.deadline_at = "queued", None, None
        self._lines.starts.ended(row.id, row.new.limit)
        row.due_at = row.due_at if delay_s is None else self._now() + delay_s
        self._lines.add(row, self._now())

    def _end(self, row: TaskRow, state: EndState) -> None:
        self._put_away(row, state)
        if row.then_id is not None and not row.has_told:
            self._report_end(Link(row.then_id, state, row.result, row.id, row.new.name, state))

    def _put_away(self, row: TaskRow, state: EndState) -> None:
        self._index.end(row, state, self._now())
        self._lines.starts.ended(row.id, row.new.limit)
        row.blockers = 0

    def _report_end(self, link: Link) -> None:
        """Report the end of a task to the task that waits for it; if that is canceled for it, also to the next one."""
        self._index[link.cause_id].has_told = True
        waiting = self._index.live.get(link.then_id)
        while waiting is not None and waiting.takes is not None and waiting.blockers:
            reports = apply_ends([link], [Blocked(waiting.id, waiting.takes, waiting.blockers)])
            for _, blockers in reports.fewer:
                waiting.blockers = blockers
            for _, result in reports.unblocked:
                self._unblock(waiting, result)
            if not reports.canceled:
                return
            self._cancel_for(waiting, link)
            if waiting.then_id is None or waiting.has_told:
                return
            waiting.has_told = True
            link = link._replace(then_id=waiting.then_id, state="canceled", result=None)
            waiting = self._index.live.get(waiting.then_id)

    def _unblock(self, row: TaskRow, result: str | None) -> None:
        if result is not None:
            row.new = msgspec.structs.replace(row.new, args=with_input(row.new.args, result))
        delay_s = max(0.0, row.due_at - row.created_at)
        row.blockers, row.due_at = 0, self._now() + delay_s
        self._lines.add(row, self._now())
        self._wake(due_s=delay_s)

    def _cancel_for(self, row: TaskRow, link: Link) -> None:
        now, note = self._now(), encode(cause_of(link))
        row.remember(note, now, "")
        self._feed.add(row, now, [NewEvent(UNNUMBERED, note)])
        self._put_away(row, "canceled")

    def _now(self) -> float:
        return self._epoch + self._clock.now()

    def _wake(self, *, cancel: bool = False, due_s: float = 0.0) -> None:
        for event_loop, on_wake in self._listeners:
            if not event_loop.is_closed():
                event_loop.call_soon_threadsafe(on_wake, Wake(cancel, due_s))
