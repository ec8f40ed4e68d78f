"""Reads from the memory store."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from everpoll.stores.contract import (
    COUNT_LIMIT,
    Event,
    EventPage,
    LimitInfo,
    LiveTask,
    QueueInfo,
    TaskFilter,
    TaskInfo,
    TaskPage,
    WorkerInfo,
)
from everpoll.stores.limits import fitting_items, size_of
from everpoll.stores.memory.rows import TaskRow, instant
from everpoll.stores.memory.state import MemoryState
from everpoll.stores.task_search import checked

WORKERS_SHOWN_S = 86_400.0


class MemoryReading(MemoryState):
    """The part of the contract that changes nothing."""

    async def losses(self, task_id: int) -> list[dict[str, Any]]:
        """See the contract."""
        with self._lock:
            return list(self._losses.get(task_id, ()))

    async def info(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """See the contract."""
        with self._lock:
            return {task_id: row.shown() for task_id in task_ids if (row := self._index.get(task_id))}

    async def sizes(self, task_ids: Sequence[int]) -> dict[int, int]:
        """See the contract."""
        with self._lock:
            return {task_id: row.payload_bytes() for task_id in task_ids if (row := self._index.get(task_id))}

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
        """See the contract."""
        with self._lock:
            ended = [row for task_id in task_ids if (row := self._index.history.get(task_id))]
            found, _ = fitting_items(ended, lambda row: size_of(row.result))
            return {row.id: None for row in ended} | {row.id: row.end() for row in found}

    async def find(self, kind: str, key: str) -> TaskInfo | None:
        """See the contract."""
        with self._lock:
            row = self._index.of_key(kind, key) or self._index.last_of_key(kind, key)
            return None if row is None else row.shown()

    async def last_results(self, kind: str, name: str, limit: int = 200) -> list[Any]:
        """See the contract."""
        with self._lock:
            ended = reversed(self._index.history.values())
            rows = (row for row in ended if row.new.indexed and (row.new.kind, row.new.name) == (kind, name))
            results = (row.result for row in rows if row.result is not None and row.result != "null")
            return [msgspec.json.decode(result) for result in islice(results, limit)]

    async def actions_of(self, task_id: int, limit: int = 1000) -> list[Event]:
        """See the contract."""
        with self._lock:
            return self._feed.actions_of(task_id, limit)

    async def task_events(self, task_id: int, after: int = 0, limit: int = 1000) -> list[Event]:
        """See the contract."""
        with self._lock:
            return self._feed.of_task(task_id, after, limit)

    async def events_of(self, after: Mapping[int, int], limit: int = 1000) -> list[Event]:
        """See the contract."""
        with self._lock:
            return [event for task_id in sorted(after) for event in self._feed.of_task(task_id, after[task_id], limit)]

    async def events(self, after: str | None, limit: int = 1000) -> EventPage:
        """See the contract."""
        with self._lock:
            return self._feed.page(after, limit)

    async def tasks(self, wanted: TaskFilter, limit: int = 50, after: int | None = None) -> TaskPage:
        """See the contract."""
        with self._lock:
            newest = islice(self._index.newest_first(checked(wanted), after), limit + 1)
            rows, is_cut = fitting_items(newest, TaskRow.payload_bytes)
            page = tuple(row.shown() for row in rows[:limit])
            return TaskPage(page, page[-1].id if is_cut or len(rows) > limit else None)

    async def live(self, kind: str, limit: int = 1_000, after: int | None = None) -> list[LiveTask]:
        """See the contract."""
        with self._lock:
            wanted = TaskFilter(kind=kind, indexed=True)
            rows = (row for row in self._index.newest_first(wanted, after) if row.ended_at is None)
            return [
                LiveTask(row.id, row.new.key, row.cancel_requested, row.new.args, row.memory)
                for row in islice(rows, limit)
            ]

    async def workers(self) -> list[WorkerInfo]:
        """See the contract."""
        with self._lock:
            now = self._now()
            running = [row.incarnation for row in self._index.live.values() if row.state == "running"]
            return [
                worker.shown(now, running.count(worker.card.incarnation))
                for worker in self._workers.values()
                if worker.stopped_at is None or worker.stopped_at > now - WORKERS_SHOWN_S
            ]

    def live_rows(self) -> tuple[list[TaskRow], float]:
        """Return the live rows, for an examination, and the store's clock."""
        with self._lock:
            return list(self._index.live.values()), self._now()

    async def queues(self) -> list[QueueInfo]:
        """See the contract."""
        with self._lock:
            now = self._now()
            counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * 5)
            dues: defaultdict[str, list[float]] = defaultdict(list)
            for row in self._index.live.values():
                if row.blockers:
                    counts[row.new.queue][4] += 1
                    continue
                is_ready = row.state == "queued" and row.due_at <= now
                is_limited = is_ready and row.new.limit is not None
                place = 3 if is_limited else 2 if row.state == "running" else row.due_at > now
                counts[row.new.queue][place] += 1
                if is_ready and not is_limited:
                    dues[row.new.queue].append(row.due_at)
            capped = {queue: [min(count, COUNT_LIMIT) for count in found] for queue, found in counts.items()}
            return [
                QueueInfo(
                    queue=queue,
                    ready=ready,
                    waiting=waiting,
                    running=running,
                    limited=limited,
                    blocked=blocked,
                    oldest_due_at=instant(min(dues[queue])) if dues[queue] else None,
                    paused=self._pauses.get(queue),
                )
                for queue in sorted({*capped, *self._pauses})
                for ready, waiting, running, limited, blocked in [capped.get(queue, [0] * 5)]
            ]

    async def limit(self, key: str) -> LimitInfo:
        """See the contract."""
        with self._lock:
            now = self._now()
            rows = [row for row in self._index.live.values() if row.new.limit and row.new.limit.key == key]
            running = [row.started_at or now for row in rows if row.state == "running"]
            return LimitInfo(
                key=key,
                waiting=sum(row.state == "queued" and row.due_at <= now and not row.blockers for row in rows),
                running=len(running),
                oldest_started_at=instant(min(running)) if running else None,
                starts=tuple((instant(span.ended), span.starts) for span in self._lines.starts.spans.get(key, ())),
            )
