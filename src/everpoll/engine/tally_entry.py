"""An entry of a worker's tally: the totals of the tasks of one kind, name and queue.

Promises: if the tasks of a batch are alike, the batch is counted as a whole, in a few steps of the interpreter.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, mul

from everpoll.policy.histogram import BASE, bucket_of
from everpoll.stores.contract import Ended, Settlement

MANY = 8
"""Up to this number, counting settlements one by one is faster."""
_PER_BUCKET = 1 / math.log(BASE)
_SMALL = [bucket_of(one + 1) for one in range(1_000)]
_ENDING = frozenset({"job", "table"})
_ENDS = {Ended}
_HANDED_BACK = '{"what":"hand-back"'

_state = attrgetter("state")


class Entry:
    """Totals of the tasks of one kind, name and queue. Histograms are of microseconds, by bucket."""

    __slots__ = ("counts", "kind", "name", "queue", "ran", "ran_s", "waited", "waited_s")

    def __init__(self, kind: str, name: str, queue: str) -> None:
        self.kind = kind
        self.name = name
        self.queue = queue
        self.counts: dict[str, int] = {}
        self.waited: dict[int, int] = {}
        self.ran: dict[int, int] = {}
        self.waited_s = 0.0
        self.ran_s = 0.0

    def copy(self) -> "Entry":
        """Return a copy, which later counts leave alone."""
        copied = Entry(self.kind, self.name, self.queue)
        copied.counts, copied.waited, copied.ran = dict(self.counts), dict(self.waited), dict(self.ran)
        copied.waited_s, copied.ran_s = self.waited_s, self.ran_s
        return copied

    def count(self, outcome: str, by: int = 1) -> None:
        """Count an outcome."""
        self.counts[outcome] = self.counts.get(outcome, 0) + by

    def since(self, before: "Entry") -> "Entry":
        """Return what was counted since an earlier copy; without the sums of times."""
        changed = Entry(self.kind, self.name, self.queue)
        changed.counts = {one: n for one, total in self.counts.items() if (n := total - before.counts.get(one, 0))}
        changed.waited = {one: n for one, total in self.waited.items() if (n := total - before.waited.get(one, 0))}
        changed.ran = {one: n for one, total in self.ran.items() if (n := total - before.ran.get(one, 0))}
        return changed

    def add(self, more: "Entry") -> None:
        """Count what another entry has counted; without the sums of times."""
        for name, count in more.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for mine, theirs in ((self.waited, more.waited), (self.ran, more.ran)):
            for bucket, count in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + count

    def add_outcomes(self, settlements: Sequence[Settlement]) -> None:
        """Count how tasks have ended, or that they go on."""
        if len(settlements) < MANY or set(map(type, settlements)) != _ENDS:
            for one in settlements:
                self.count(outcome_of(one, self.kind))
            return
        states = set(map(_state, settlements))
        # Tasks that end together mostly end alike.
        counted = Counter(map(_state, settlements)) if len(states) > 1 else {states.pop(): len(settlements)}
        for outcome, tasks in counted.items():
            self.count(outcome, tasks)

    def add_waited(self, times_us: Sequence[float], tasks: int = 1) -> None:
        """Count how long tasks waited; `tasks` is how many waited for each of these times."""
        self.waited_s += sum(times_us) * 1e-6 * tasks
        waited, first = self.waited, _bucket(min(times_us))
        # Tasks that are leased together have mostly waited for about the same time.
        if first == _bucket(max(times_us)):
            waited[first] = waited.get(first, 0) + tasks * len(times_us)
            return
        for bucket in map(_bucket, times_us):
            waited[bucket] = waited.get(bucket, 0) + tasks

    def add_ran(self, times_s: Sequence[float]) -> None:
        """Count how long runs took."""
        self.ran_s += sum(times_s)
        ran, times_us = self.ran, list(map(int, map(mul, times_s, repeat(1e6))))
        if len(times_us) < MANY:
            for bucket in map(_bucket, times_us):
                ran[bucket] = ran.get(bucket, 0) + 1
            return
        # Short runs, of which there are many, without a step of the interpreter for each.
        is_short = min(times_us) >= 0 and max(times_us) < len(_SMALL)
        for bucket, runs in Counter(map(_SMALL.__getitem__ if is_short else _bucket, times_us)).items():
            ran[bucket] = ran.get(bucket, 0) + runs


def outcome_of(settlement: Settlement, kind: str) -> str:
    """Return the outcome under which a settlement of a task of that kind is counted."""
    if isinstance(settlement, Ended):
        return settlement.state
    if settlement.set_aside:
        return "set_aside"
    note = settlement.note
    if note is not None and note.startswith(_HANDED_BACK):
        return "returned"
    if kind not in _ENDING:
        return "looked"
    return "snoozed" if settlement.refund else "retried"


def _bucket(time_us: float) -> int:
    """Return the bucket of a time; below a millisecond by a table, to the microsecond."""
    if time_us < len(_SMALL):
        return _SMALL[int(time_us)] if time_us > 0 else 0
    return math.ceil(math.log(time_us) * _PER_BUCKET)
