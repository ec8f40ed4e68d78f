"""Lines: which queued task is leased next, and when the next waiting task falls due.

    not due yet ──▶ ready: one line for each queue
                └─▶ limited: one line for each key of a limit in each queue; keys take turns

Promises: an entry is checked when it comes to the front, and dropped if its row has changed meanwhile. `TaskIndex` owns
the rows, and decides which are live.
"""

import bisect
import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from everpoll.stores.contract import Limit
from everpoll.stores.memory.rows import TaskRow
from everpoll.stores.memory.starts import Starts

AGED = -(2**31)
"""The rank of aged tasks: better than every priority."""
NEVER = float("-inf")
"""An instant before every due time."""


class Polling(NamedTuple):
    """The parameters of one poll: its time, the limits in the code of the worker, and when tasks count as aged."""

    now: float
    limits: Mapping[str, Limit]
    aged_before: float = NEVER

    def order(self, row: TaskRow) -> tuple[int, float, int]:
        """Return the sort key of a row, with aging."""
        rank, due_at, task_id = row.order
        return (AGED if due_at < self.aged_before else rank, due_at, task_id)


class Line:
    """Queued rows, by rank and then by due time."""

    def __init__(self, live: Mapping[int, TaskRow]) -> None:
        self._live = live
        self._ranks: dict[int, list[tuple[float, int]]] = {}

    def add(self, row: TaskRow) -> None:
        """Put a queued row in its place."""
        rank, due_at, task_id = row.order
        heapq.heappush(self._ranks.setdefault(rank, []), (due_at, task_id))

    def best(self, polling: Polling) -> TaskRow | None:
        """Return the best row; it stays in line until it is leased."""
        return min((self._live[entries[0][1]] for entries in self._lines()), key=polling.order, default=None)

    def ranks(self) -> set[int]:
        """Return the ranks of the rows in this line."""
        return {self._live[entries[0][1]].order[0] for entries in self._lines()}

    def _lines(self) -> Iterator[list[tuple[float, int]]]:
        """Yield the rows of each rank; entries at the front whose rows have changed are dropped."""
        for rank, entries in list(self._ranks.items()):
            while entries and not self._is_here(rank, entries[0]):
                heapq.heappop(entries)
            if entries:
                yield entries
            else:
                del self._ranks[rank]

    def _is_here(self, rank: int, entry: tuple[float, int]) -> bool:
        row = self._live.get(entry[1])
        return row is not None and row.state == "queued" and row.order == (rank, *entry)


class LimitedLines:
    """The limited tasks of one queue: a line for each key, and the key that is next in turn."""

    def __init__(self, live: Mapping[int, TaskRow]) -> None:
        self._live = live
        self._lines: dict[str, Line] = {}
        self._keys: list[str] = []
        self._served: str = ""

    def add(self, row: TaskRow, key: str) -> None:
        """Put a queued row in the line of its key."""
        if key not in self._lines:
            self._lines[key] = Line(self._live)
            bisect.insort(self._keys, key)
        self._lines[key].add(row)

    def best(self, polling: Polling, starts: Starts) -> TaskRow | None:
        """Return the best task that its limit lets start: the oldest aged one; else by rank, and within a rank from the
        key that comes next."""
        found: tuple[tuple[float, ...], TaskRow] | None = None
        for row in self.heads(polling):
            order: tuple[float, ...] = polling.order(row)
            if order[0] != AGED:
                order = order[:1]
            if (found is None or order < found[0]) and starts.may_start(_limit(row, polling), polling.now):
                found = (order, row)
        return None if found is None else found[1]

    def ranks(self) -> Iterator[set[int]]:
        """Yield the ranks of each key."""
        return (line.ranks() for line in self._lines.values())

    def heads(self, polling: Polling) -> Iterator[TaskRow]:
        """Yield the first of each key, beginning after the key that was served last."""
        turn = bisect.bisect_right(self._keys, self._served)
        for key in self._keys[turn:] + self._keys[:turn]:
            row = self._lines[key].best(polling)
            if row is None:
                del self._lines[key]
                self._keys.remove(key)
            else:
                yield row

    def served(self, key: str) -> None:
        """Record that a task of this key was leased: the key after it comes next."""
        self._served = key


class Lines:
    """A line for each queue, a line for each key of a limit in it, and the tasks that are not due yet."""

    def __init__(self, live: Mapping[int, TaskRow]) -> None:
        self._live = live
        self._ready: defaultdict[str, Line] = defaultdict(lambda: Line(live))
        self._limited: defaultdict[str, LimitedLines] = defaultdict(lambda: LimitedLines(live))
        self._waiting: list[tuple[float, int]] = []
        self.starts = Starts()

    def add(self, row: TaskRow, now: float) -> None:
        """Put a queued row in its line; a row that waits for other tasks is in no line."""
        if row.blockers:
            return
        if row.due_at > now:
            heapq.heappush(self._waiting, (row.due_at, row.id))
        else:
            self._join(row)

    def _join(self, row: TaskRow) -> None:
        if row.new.limit is None:
            self._ready[row.new.queue].add(row)
        else:
            self._limited[row.new.queue].add(row, row.new.limit.key)

    def promote(self, now: float) -> None:
        """Move waiting rows whose time has come into the line."""
        while self._waiting and self._waiting[0][0] <= now:
            due_at, task_id = heapq.heappop(self._waiting)
            row = self._live.get(task_id)
            if row is not None and row.state == "queued" and row.due_at == due_at:
                self._join(row)

    def best(self, rooms: Mapping[str, int], polling: Polling) -> TaskRow | None:
        """Return the best row of all queues that have room. If all rows have one priority, aging has no effect."""
        if polling.aged_before != NEVER and not self._has_several_ranks(rooms):
            polling = polling._replace(aged_before=NEVER)
        heads = [head for queue, room in rooms.items() if room > 0 for head in self._heads(queue, polling)]
        return min(heads, key=polling.order, default=None)

    def _has_several_ranks(self, rooms: Mapping[str, int]) -> bool:
        seen: set[int] = set()
        queues = [queue for queue, room in rooms.items() if room > 0]
        for ranks in chain.from_iterable(self._ranks(queue) for queue in queues):
            seen |= ranks
            if len(seen) > 1:
                return True
        return False

    def _ranks(self, queue: str) -> Iterator[set[int]]:
        yield self._ready[queue].ranks()
        yield from self._limited[queue].ranks()

    def _heads(self, queue: str, polling: Polling) -> Iterator[TaskRow]:
        if (ready := self._ready[queue].best(polling)) is not None:
            yield ready
        if (limited := self._limited[queue].best(polling, self.starts)) is not None:
            yield limited

    def leased(self, row: TaskRow, polling: Polling) -> None:
        """Record that a row starts now, and count it for its limit."""
        if row.new.limit is not None:
            self._limited[row.new.queue].served(row.new.limit.key)
            self.starts.started(row.id, _limit(row, polling), polling.now)

    def next_due_s(self, queues: Iterable[str], polling: Polling) -> float | None:
        """Return how long until the first waiting task falls due, or until a rate lets a task start."""
        wanted, now = set(queues), polling.now
        rows = (self._live.get(task_id) for _, task_id in self._waiting)
        # A task that was canceled while it waited and then retried is in a line, and still has an old entry here.
        waits = [row.due_at - now for row in rows if row and row.state == "queued" and row.new.queue in wanted]
        heads = (row for queue in wanted for row in self._limited[queue].heads(polling))
        waits += [self.starts.opens_at(_limit(row, polling), now) - now for row in heads]
        return min((wait_s for wait_s in waits if 0 < wait_s < float("inf")), default=None)


def _limit(row: TaskRow, polling: Polling) -> Limit:
    assert row.new.limit is not None, "only limited rows are in these lines"
    return row.new.limit.ruled_by(polling.limits.get(row.new.name))
