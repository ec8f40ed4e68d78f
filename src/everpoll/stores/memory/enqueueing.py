"""Enqueueing in the memory store, and the handling of keys that other tasks have."""

import math
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from everpoll.stores.contract import Enqueued, NewTask
from everpoll.stores.limits import checked_bytes
from everpoll.stores.memory.rows import TaskRow
from everpoll.stores.memory.state import MemoryState
from everpoll.stores.task_events import REPLACED

_unique = attrgetter("unique")


class MemoryEnqueueing(MemoryState):
    """The part of the contract that enqueues."""

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """See the contract."""
        checked_bytes(tasks)
        delays_s = [max(0.0, task.delay_s) for task in tasks]
        with self._lock:
            answers = self._rejected(tasks) or [
                self._enqueue(task, delay_s) for task, delay_s in zip(tasks, delays_s, strict=True)
            ]
        self._wake(due_s=min(delays_s, default=0.0))
        return answers

    def _rejected(self, tasks: Sequence[NewTask]) -> list[Enqueued] | None:
        """Return the answers of a call that enqueues nothing, because one of its tasks is rejected; else None."""
        if not any(map(_unique, tasks)):
            return None
        known = [self._known(task) if task.unique and task.unique.together else None for task in tasks]
        if not any(known):
            return None
        return [Enqueued(0 if row is None else row.id, is_new=False) for row in known]

    def _known(self, task: NewTask) -> TaskRow | None:
        """Return the task that has the key of this one; ended tasks may keep their key for some time."""
        row = self._index.of_key(task.kind, task.key)
        if row is None and (task.once or (task.unique is not None and task.unique.for_s is not None)):
            row = self._index.last_of_key(task.kind, task.key)
            if row is not None and not task.once:
                assert task.unique is not None, "asked above"
                return row if row.created_at > self._now() - (task.unique.for_s or 0.0) else None
        return row

    def _enqueue(self, task: NewTask, delay_s: float) -> Enqueued:
        known = None if task.key is None else self._known(task)
        if known is not None and known.ended_at is None and task.unique and task.unique.on_conflict == "replace":
            if known.state == "queued" and known.takes is None:
                self._replace(known, task, delay_s)
                return Enqueued(known.id, is_new=False)
            self._index.release_key(known)
            known = None
        if known is not None:
            return Enqueued(known.id, is_new=False)
        now = self._now()
        self._last_id += 1
        row = TaskRow(self._last_id, task, now, now + delay_s, memory=task.memory)
        self._index.put(row)
        self._lines.add(row, now)
        self._feed.add(row, now, task.events)
        return Enqueued(row.id)

    def _replace(self, row: TaskRow, task: NewTask, delay_s: float) -> None:
        """Replace the values of a queued row by those of a new task."""
        now = self._now()
        # The due time must differ from the old one: otherwise the old entry of the line would count as the new one.
        due_at = now + delay_s if now + delay_s != row.due_at else math.nextafter(row.due_at, math.inf)
        row.new = msgspec.structs.replace(task, indexed=task.indexed or row.new.indexed)
        row.due_at, row.memory, row.attempt, row.rescues = due_at, task.memory, 0, 0
        row.progress = row.started_at = row.error_type = None
        if row.trail and row.trail[-1].get("what") == "replaced":
            del row.trail[-1]
        row.remember(REPLACED, now, "")
        self._lines.add(row, now)
