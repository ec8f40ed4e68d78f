"""Where the ready index is known to hold nothing but gone entries: per queue and rank, up to which due time.

While a transaction elsewhere holds an old snapshot, the index entries of tasks that have long ended can neither be
removed nor skipped, and every look walks all of them: 20 ms after 200,000 tasks, measured, which takes throughput to a
sixth. So a look may start behind the last due time that was leased. The gaps between known ranks stay covered: a new
priority is found at once.

Marks are a hint for speed, never the truth. Behind one may lie: a row committed late, one handed back, rescued or
promoted, one whose lease was rolled back. Nor does a marked look see that a waiting task has fallen due. Therefore

- they are used only while they pay: in a run of full batches, or where full looks have become slow;
- a full look comes whenever ten times as long has passed as the last one took: a tenth of the time at most, and
  nothing stays unseen for longer;
- nobody goes to rest on a marked look: it is followed by a full one, or says when that is due;
- whatever this process itself puts behind a mark (`forget`), and every reconnect, asks for a full look.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

LOWEST = datetime(1, 1, 2, tzinfo=UTC)
RANK_MIN, RANK_END = -(2**31), 2**31

SHARE = 0.1
"""Of the time, what full looks may take."""
MARKS_PER_QUEUE = 16
"""Ranks remembered; the one with the oldest due time is dropped first."""
RUN_LOOKS, RUN_ROWS = 2, 100
"""A run: this many batches in a row that came back full, of at least this many rows."""
SLOW_S, SLOW_PER_ROW_S = 0.002, 0.00001
"""A full look that takes longer in the server walks over much that is gone."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where to look: the arrays that the lease function takes."""

    is_full: bool
    queues: list[str]
    ranks_from: list[int]
    dues_from: list[datetime]
    ranks_to: list[int]


class Marks:
    """What one process remembers of its looks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, dict[int, datetime]] = {}
        self._full_at = 0.0
        self._run = 0
        self._slow = 0

    def ranges(self, queues: Sequence[str]) -> Ranges:
        """Where the next look should look."""
        if self._pay() and self._clock() < self._full_at:
            return self._marked(queues)
        return self.full(queues)

    def full(self, queues: Sequence[str]) -> Ranges:
        """Everywhere."""
        count = len(queues)
        return Ranges(True, list(queues), [RANK_MIN] * count, [LOWEST] * count, [RANK_END] * count)

    def full_due_s(self) -> float:
        """After a marked look that found too little: seconds until a full one may follow; 0: at once."""
        return max(0.0, self._full_at - self._clock()) if self._slow >= 2 else 0.0

    def looked(self, ranges: Ranges, took_s: float, found: int, asked: int) -> None:
        """A look is over: how long the server took, how many it brought, of how many."""
        self._run = self._run + 1 if found >= asked >= RUN_ROWS else 0
        if ranges.is_full:
            self._full_at = self._clock() + took_s / SHARE
            self._slow = self._slow + 1 if took_s > SLOW_S + SLOW_PER_ROW_S * found else 0

    def leased(self, marks: Iterable[tuple[str, int, datetime]]) -> None:
        """How far a look came, per queue and rank."""
        for queue, rank, due_at in marks:
            seen = self._seen.setdefault(queue, {})
            if rank not in seen or due_at > seen[rank]:
                seen[rank] = due_at
                if len(seen) > MARKS_PER_QUEUE:
                    del seen[min(seen, key=seen.__getitem__)]

    def forget(self) -> None:
        """Something lies behind the marks: look everywhere next. May be called from any thread."""
        self._full_at = 0.0

    def _pay(self) -> bool:
        return self._run >= RUN_LOOKS or self._slow >= 2

    def _marked(self, queues: Sequence[str]) -> Ranges:
        ranges = Ranges(False, [], [], [], [])
        for queue in queues:
            seen = self._seen.get(queue, {})
            ranks = sorted(seen)
            ranges.queues.extend([queue] * (len(ranks) + 1))
            ranges.ranks_from.extend((RANK_MIN, *ranks))
            ranges.dues_from.extend((LOWEST, *(seen[rank] for rank in ranks)))
            ranges.ranks_to.extend((*ranks, RANK_END))
        return ranges
