"""Flows in the memory store: tasks that wait for other tasks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from everpoll.stores.contract import Enqueued, TaskInfo, TaskState
from everpoll.stores.flows import FlowTask, blockers_of, check_flow
from everpoll.stores.limits import checked_bytes
from everpoll.stores.memory.rows import TaskRow
from everpoll.stores.memory.state import MemoryState


class MemoryFlows(MemoryState):
    """The part of the contract about flows."""

    async def enqueue_flow(self, flow: Sequence[FlowTask]) -> list[Enqueued]:
        """See the contract."""
        check_flow(flow)
        checked_bytes([one.task for one in flow])
        with self._lock:
            holders = [self._index.of_key(one.task.kind, one.task.key) for one in flow]
            if any(holders):
                return [Enqueued(0 if row is None else row.id, is_new=False) for row in holders]
            ids = range(self._last_id + 1, self._last_id + 1 + len(flow))
            self._last_id += len(flow)
            for task_id, one, blockers in zip(ids, flow, blockers_of(flow), strict=True):
                self._put_in(task_id, one, blockers, None if one.then is None else ids[one.then])
        self._wake()
        return [Enqueued(task_id) for task_id in ids]

    def _put_in(self, task_id: int, one: FlowTask, blockers: int, then_id: int | None) -> None:
        now, task = self._now(), one.task
        row = TaskRow(task_id, task, now, now + max(0.0, task.delay_s), memory=task.memory)
        row.then_id, row.takes, row.blockers = then_id, one.takes, blockers
        if then_id is not None:
            self._members[then_id].append(task_id)
        self._index.put(row)
        self._lines.add(row, now)

    async def members(self, task_id: int, after: int = 0, limit: int = 1000) -> list[TaskInfo]:
        """See the contract."""
        with self._lock:
            return [row.shown() for row in islice(self._leading(task_id, after), limit)]

    async def member_counts(self, task_id: int) -> dict[TaskState, int]:
        """See the contract."""
        with self._lock:
            return dict(Counter(row.state for row in self._leading(task_id, 0)))

    def _leading(self, task_id: int, after: int) -> Iterator[TaskRow]:
        rows = (self._index.get(one) for one in self._members.get(task_id, ()) if one > after)
        return (row for row in rows if row is not None)
