"""Lines: which queued task is the best, and when the next one falls due.

Promises: an entry is pushed once and judged when it comes to the front: one whose row has moved on meanwhile is
dropped then. Never: owns a row; what lives is the shelves' to say.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping

from everpoll.stores.memory.rows import TaskRow


class Lines:
    """One line for each queue, and one in front of them for what is not due yet."""

    def __init__(self, live: Mapping[int, TaskRow]) -> None:
        self._live = live
        self._ready: defaultdict[str, list[tuple[int, float, int]]] = defaultdict(list)
        self._waiting: list[tuple[float, int]] = []

    def add(self, row: TaskRow, now: float) -> None:
        """A queued row, in its place."""
        if row.due_at > now:
            heapq.heappush(self._waiting, (row.due_at, row.id))
        else:
            heapq.heappush(self._ready[row.new.queue], row.order)

    def promote(self, now: float) -> None:
        """Waiting rows whose time has come join the line."""
        while self._waiting and self._waiting[0][0] <= now:
            due_at, task_id = heapq.heappop(self._waiting)
            row = self._live.get(task_id)
            if row is not None and row.state == "queued" and row.due_at == due_at:
                heapq.heappush(self._ready[row.new.queue], row.order)

    def take_best(self, rooms: Mapping[str, int]) -> TaskRow | None:
        """The best of all queues that have room, out of its line."""
        heads = [(head, queue) for queue, room in rooms.items() if room > 0 and (head := self._head(queue))]
        if not heads:
            return None
        _, queue = min(heads)
        return self._live[heapq.heappop(self._ready[queue])[2]]

    def next_due_s(self, queues: Iterable[str], now: float) -> float | None:
        """How long until the first of those that wait."""
        wanted = set(queues)
        rows = (self._live.get(task_id) for _, task_id in self._waiting)
        # What was canceled while it waited and put back since is in the line, and has an old entry here.
        waits = (row.due_at - now for row in rows if row and row.state == "queued" and row.new.queue in wanted)
        return min((wait_s for wait_s in waits if wait_s > 0), default=None)

    def _head(self, queue: str) -> tuple[int, float, int] | None:
        """The first entry that still stands for a queued row in that place."""
        line = self._ready[queue]
        while line:
            row = self._live.get(line[0][2])
            if row is not None and row.state == "queued" and row.order == line[0]:
                return line[0]
            heapq.heappop(line)
        return None
