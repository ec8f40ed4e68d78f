"""Heartbeats of workers of the memory store, and the rescue of the tasks of stopped workers."""

from collections.abc import Sequence

from everpoll.policy.liveness import OtherWorker
from everpoll.stores.contract import RESCUE_LIMIT, TRAIL_LIMIT, Beat, EndState, Rescued
from everpoll.stores.memory.rows import TaskRow
from everpoll.stores.memory.state import MemoryState
from everpoll.stores.task_events import LOST_WORKER, OVERDUE, rescued_event


class MemoryRescue(MemoryState):
    """The calls of `MemoryHeartbeatConnection`, from any thread."""

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """See the contract."""
        with self._lock:
            worker = self._workers.get(incarnation)
            if worker is None or worker.stopped_at is not None:
                return Beat(is_alive=False)
            worker.beat_at, worker.lease_s = self._now(), lease_s
            worker.beats += 1
            return Beat(
                is_alive=True,
                canceled=tuple(one for one in running if (row := self._index.live.get(one)) and row.cancel_requested),
                others=tuple(
                    OtherWorker(other, row.beats, row.lease_s)
                    for other, row in self._workers.items()
                    if other != incarnation and row.stopped_at is None
                ),
                has_leftovers=any(self._is_held_by_stopped(row) for row in self._index.live.values()),
            )

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract."""
        with self._lock:
            now = self._now()
            for other, beats in dead:
                worker = self._workers.get(other)
                if worker is not None and worker.stopped_at is None and worker.beats == beats:
                    worker.stopped_at = now
            late = [self._index.held(incarnation, *fence) for fence in overdue]
            lost = [row for row in self._index.live.values() if self._is_held_by_stopped(row)]
            lost += [row for row in late if row is not None]
            for row in lost:
                self._take_back(row, now)
            return Rescued(len(lost), tuple(row.id for row in lost if row.id not in self._index.live))

    def _is_held_by_stopped(self, row: TaskRow) -> bool:
        worker = self._workers.get(row.incarnation or 0)
        return row.state == "running" and (worker is None or worker.stopped_at is not None)

    def _take_back(self, row: TaskRow, now: float) -> None:
        worker = self._workers.get(row.incarnation or 0)
        dead = worker is None or worker.stopped_at is not None
        row.rescues += 1
        row.attempt -= 1
        poison = row.rescues >= RESCUE_LIMIT
        is_canceled = row.cancel_requested and not row.is_asked
        why = LOST_WORKER if dead else OVERDUE
        if is_canceled or poison:
            what: EndState = "canceled" if is_canceled else "failed"
            self._feed.add(row, now, [rescued_event(what, why, row.rescues)])
        row.trail.append(
            {
                "at": now,
                "by": "rescue",
                "what": "failed" if poison else "rescue",
                "why": why,
                "worker": row.worker,
                "started_at": row.started_at,
                "rescues": row.rescues,
            }
        )
        del row.trail[:-TRAIL_LIMIT]
        if is_canceled:
            self._end(row, "canceled")
        elif poison:
            self._end(row, "failed")
        else:
            self._again(row, None)
