"""Marks: up to which due time this process has leased, per queue and rank, so that the next poll can start there.

The problem: while any transaction holds an old snapshot, Postgres cannot remove the index entries of ended tasks. A
poll (one call of `lease`) that starts at the beginning of the index reads all of these dead entries: 20 ms after
200,000 tasks, measured, which takes throughput to a sixth.

A full poll starts at the beginning. A marked poll starts at the marks: at the last leased due time of each queue and
rank, and at the time before which no waiting task was due. It also covers the gaps between known ranks, so it finds a
new priority at once.

    full polls are fast ──▶ polls are full, except in the middle of a run of full batches
    full polls are slow ──▶ polls are marked; a sweep on another connection searches before the marks

Marks only save time. A due task may be before a mark: its row was committed late; it was handed back, rescued or
promoted; its lease was rolled back. So that each such task is found:

- In a run of full batches, full polls take a twentieth of the time (SHARE). A marked poll that finds too little is
  followed by a full one at once.
- If full polls are slow, a sweep (`everpoll.behind`) searches before the marks, a twentieth of the time (SWEEP_SHARE),
  beside the polls and without locks. The next poll leases what it found. Once a sweep is fast, polls are full again.
- After this process itself has put a task before a mark, and after each reconnect, `forget` asks for a full poll. It
  comes as soon as SHARE allows.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter

LOWEST = datetime(1, 1, 2, tzinfo=UTC)
RANK_MIN, RANK_END = -(2**31), 2**31

SHARE = 0.05
"""The share of the time that full polls may take."""
SWEEP_SHARE = 0.05
"""The share of the time that sweeps may take."""
QUEUES_LIMIT = 16
"""With more queues every poll is full: so many ranges would cost more than they save."""
MARKS_PER_QUEUE = 1_024
"""Ranks remembered; the one with the oldest due time is dropped first."""
RANGES_PER_POLL = 64
"""In a run of full batches a poll searches the last rank, and takes turns with the others: 1.5 us a range."""
RUN_POLLS, RUN_ROWS = 2, 25
"""A run: this many batches in a row that came back full, of at least this many rows."""
SLOW_POLLS = 2
SLOW_S, SLOW_PER_ROW_S = 0.002, 0.00001
"""A full poll that takes longer in the server reads many dead entries."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where to poll: the arrays that the lease function takes."""

    queues: list[str]
    ranks_from: list[int]
    dues_from: list[datetime]
    ranks_to: list[int]
    waits_from: list[datetime]
    is_full: bool = False
    asks_waiting: bool = False
    is_whole: bool = True
    """Whether the poll covers everything after the marks."""


@dataclass(frozen=True, slots=True)
class SweepQuery:
    """Where a sweep searches: the arrays that `everpoll.behind` takes."""

    wanted: list[str]
    waits_from: list[datetime]
    queues: list[str]
    ranks: list[int]
    dues: list[datetime]


class Marks:
    """The marks of one process, and how long its polls and sweeps take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, dict[int, datetime]] = {}
        self._waits: dict[str, datetime] = {}
        self._found: dict[tuple[str, int], datetime] = {}
        self._full_at = 0.0
        self._sweep_at = 0.0
        self._wants_full = False
        self._run = 0
        self._slow = 0
        self._turn = 0

    @property
    def are_needed(self) -> bool:
        """Whether full polls are slow."""
        return self._slow >= SLOW_POLLS

    def ranges(self, queues: Sequence[str]) -> Ranges:
        """Return the ranges in which the next poll searches."""
        now = self._clock()
        if len(queues) > QUEUES_LIMIT or (self._wants_full and now >= self._full_at):
            return self.full(queues)
        if self.are_needed:
            return self._marked(queues)
        is_in_run = self._run >= RUN_POLLS and not self._wants_full and now < self._full_at
        return self._marked(queues) if is_in_run else self.full(queues)

    def full(self, queues: Sequence[str]) -> Ranges:
        """Return ranges that cover everything."""
        return Ranges([], [], [], [], [LOWEST] * len(queues), is_full=True, asks_waiting=True)

    def polled(self, ranges: Ranges, took_s: float, found: int, asked: int, *, is_run: bool = True) -> None:
        """Note how long a poll took in the server, how many tasks it found, and how many it asked for.

        `is_run=False`: it found them among waiting tasks, so the next poll must ask for waiting tasks again.
        """
        self._run = self._run + 1 if is_run and found >= asked >= RUN_ROWS else 0
        if ranges.is_full:
            self._full_at = self._clock() + took_s / SHARE
            self._wants_full = False
            self._slow = self._slow + 1 if took_s > SLOW_S + SLOW_PER_ROW_S * found else 0
        else:
            self._found.clear()

    def leased(self, marks: Iterable[tuple[str, int, datetime]]) -> None:
        """Move the marks forward to the last task that a poll leased, for each queue and rank."""
        for queue, rank, due_at in marks:
            seen = self._seen.setdefault(queue, {})
            if rank not in seen or due_at > seen[rank]:
                seen[rank] = due_at
                if len(seen) > MARKS_PER_QUEUE:
                    del seen[min(seen, key=seen.__getitem__)]

    def nothing_waits(self, until: Iterable[tuple[str, datetime]]) -> None:
        """Note, for each queue, the instant before which no due task waits in it any more."""
        self._waits.update(until)

    def made_ready(self, since: Iterable[tuple[str, datetime]]) -> None:
        """Move the marks of each queue back to the earliest due time of what a poll made ready there.

        The poll may have left some of it, and a mark may have been ahead of it.
        """
        for queue, due_at in since:
            seen = self._seen.get(queue, {})
            for rank, mark in seen.items():
                if mark > due_at:
                    seen[rank] = due_at

    def forget(self) -> None:
        """Ask for a full poll: a task is before the marks. May be called from any thread."""
        self._wants_full = True

    def sweep(self, queues: Sequence[str]) -> SweepQuery | None:
        """Return where the next sweep searches; None: no sweep is due."""
        if not self.are_needed or self._clock() < self._sweep_at:
            return None
        self._sweep_at = float("inf")
        marks = [(queue, rank, due) for queue in queues for rank, due in self._seen.get(queue, {}).items()]
        return SweepQuery(
            list(queues), self._waits_from(queues), *map(list, zip(*marks, strict=True) if marks else ([],) * 3)
        )

    def swept(
        self, query: SweepQuery, took_s: float, found: Iterable[tuple[str, int, datetime]], *, is_late: bool
    ) -> bool:
        """Note what a sweep found before the marks; return whether there is a reason to poll now."""
        self._sweep_at = self._clock() + took_s / SWEEP_SHARE
        if took_s < SLOW_S:
            self._slow = 0
        before = len(self._found)
        self._found.update({(queue, rank): due for queue, rank, due in found})
        if is_late:
            for queue in query.wanted:
                self._waits.pop(queue, None)
        return is_late or len(self._found) > before

    def sweep_failed(self) -> None:
        """Try again in a second."""
        self._sweep_at = self._clock() + 1.0

    def _waits_from(self, queues: Sequence[str]) -> list[datetime]:
        return [self._waits.get(queue, LOWEST) for queue in queues]

    def _marked(self, queues: Sequence[str]) -> Ranges:
        is_whole = True
        ranges: list[tuple[str, int, datetime, int]] = []
        for queue in queues:
            seen = self._seen.get(queue, {})
            ranks = sorted(seen)
            of_queue = [(queue, RANK_MIN, LOWEST, ranks[0] if ranks else RANK_END)]
            for rank, rank_to in zip(ranks, [*ranks[1:], RANK_END], strict=False):
                of_queue.append((queue, rank, self._found.get((queue, rank), seen[rank]), rank_to))
            if self._run and len(of_queue) > RANGES_PER_POLL:
                is_whole = False
                of_queue = [of_queue[0], *self._some(of_queue[1:-1]), of_queue[-1]]
            ranges += of_queue
        names, ranks_from, dues_from, ranks_to = map(list, zip(*ranges, strict=True))
        return Ranges(
            names,
            ranks_from,
            dues_from,
            ranks_to,
            self._waits_from(queues),
            asks_waiting=self.are_needed,
            is_whole=is_whole,
        )

    def _some(self, ranges: list[tuple[str, int, datetime, int]]) -> list[tuple[str, int, datetime, int]]:
        """Return a part of these ranges, another part each time."""
        size = RANGES_PER_POLL - 2
        start = self._turn * size % len(ranges)
        self._turn += 1
        if not self._found:
            return ranges[start : start + size]
        # Ranges in which a sweep has found a task come first: this poll forgets them.
        found = [one for one in ranges if (one[0], one[1]) in self._found][:size]
        others = [one for one in ranges[start : start + size] if (one[0], one[1]) not in self._found]
        return sorted([*found, *others[: size - len(found)]], key=itemgetter(1))
