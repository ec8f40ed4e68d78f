"""The tally of one worker: how many tasks ended in which way, how long they waited and how long they ran.

    leased ──▶ how long it waited     ended ──▶ how long it ran     settled ──▶ its outcome

Totals since the start, for metrics; figures of each minute and hour, for charts, are differences between totals.

Promises: an outcome is counted once the store has written it, and a result that was dropped counts as lost. At most
NAMES names are counted separately; the tasks of further ones are counted together. A batch of tasks of one name is
counted as a whole: 0.3 µs a job in batches of 500, 0.7 with 50 slots. The heartbeat's thread may read at any time.
"""

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter, mul
from typing import NamedTuple

from everpoll.policy import Histogram
from everpoll.policy.histogram import BASE, bucket_of
from everpoll.stores.contract import Ended, Lease, Settlement
from everpoll.stores.figures import HOUR_S, MINUTE_S, OTHERS, Figure

NAMES = 100
PENDING = 500
"""Spans of the past whose figures wait for a database that is away; the oldest go first."""
RESCUES = ("worker", "", "")
"""Kind, name and queue under which rescued tasks are counted: the rescue does not tell their names."""

MANY = 8
"""Up to so many are counted faster one by one."""
_PER_BUCKET = 1 / math.log(BASE)
_SMALL = [bucket_of(one + 1) for one in range(1_000)]
_ENDING = frozenset({"job", "table"})
_ENDS = {Ended}
_HANDED_BACK = '{"what":"give-back"'
_Key = tuple[str, str, str]

_name, _queue, _state = attrgetter("name"), attrgetter("queue"), attrgetter("state")


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
        """Return a copy of it as it is now."""
        copied = Entry(self.kind, self.name, self.queue)
        copied.counts, copied.waited, copied.ran = dict(self.counts), dict(self.waited), dict(self.ran)
        copied.waited_s, copied.ran_s = self.waited_s, self.ran_s
        return copied

    def count(self, outcome: str, by: int = 1) -> None:
        """Count an outcome."""
        self.counts[outcome] = self.counts.get(outcome, 0) + by

    def add_outcomes(self, settlements: Sequence[Settlement]) -> None:
        """Count how tasks have ended, or that they go on."""
        if len(settlements) >= MANY and set(map(type, settlements)) == _ENDS:
            for outcome, tasks in Counter(map(_state, settlements)).items():
                self.count(outcome, tasks)
        else:
            for one in settlements:
                self.count(_outcome(one, self.kind))

    def add_waited(self, times_us: Sequence[float], tasks: int = 1) -> None:
        """Count how long tasks waited: so many for each of these times."""
        self.waited_s += sum(times_us) * 1e-6 * tasks
        waited, bucket, low, high = self.waited, 0, 1.0, 0.0
        for time_us in times_us:
            # Tasks that are leased together have mostly waited for about the same time.
            if not low < time_us <= high:
                bucket = _bucket(time_us)
                high = BASE**bucket
                low = high / BASE
            waited[bucket] = waited.get(bucket, 0) + tasks

    def add_ran(self, times_s: Sequence[float]) -> None:
        """Count how long runs took."""
        self.ran_s += sum(times_s)
        times_us = map(int, map(mul, times_s, repeat(1e6)))
        # By whole microseconds first: short runs, of which there are many, have few different ones.
        runs_by_time = Counter(times_us).items() if len(times_s) >= MANY else zip(times_us, repeat(1))
        for time_us, runs in runs_by_time:
            bucket = _bucket(time_us)
            self.ran[bucket] = self.ran.get(bucket, 0) + runs


class Batch(NamedTuple):
    """Settlements, and of each where its end is counted and how long its run took; None: it never began."""

    settlements: Sequence[Settlement]
    entries: Sequence[Entry | None]
    times_s: Sequence[float]

    def part(self, start: int, end: int) -> "Batch":
        """Return some of them."""
        return Batch(self.settlements[start:end], self.entries[start:end], self.times_s[start:end])


class Published:
    """Figures on their way to the store, of one or two incarnations of the worker."""

    __slots__ = ("by_incarnation", "past", "version")

    def __init__(self, by_incarnation: dict[int, list[Figure]], past: int, version: int) -> None:
        self.by_incarnation = by_incarnation
        self.past = past
        self.version = version


class Tally:
    """What one worker has done since it started. `kind_of` tells the kind of tasks of a name."""

    def __init__(self, kind_of: Callable[[str], str]) -> None:
        self._kind_of = kind_of
        self._entries: dict[_Key, Entry] = {}
        self._by_name: dict[str, Entry] = {}
        self._lock = threading.RLock()
        self._version = self._published_version = 0
        self._incarnation = 0
        self._spans = {MINUTE_S: _Span(MINUTE_S), HOUR_S: _Span(HOUR_S)}
        self._past: deque[tuple[int, list[Figure]]] = deque(maxlen=PENDING)

    def leased(self, leases: Sequence[Lease], waited_us: Sequence[float]) -> Iterable[Entry]:
        """Count how long these waited; return where to count the end of each.

        `waited_us`: as many values as leases, a single one for all of them, or none where that is not known.
        """
        with self._lock:
            # Tasks that are leased together mostly have one name.
            is_alike = len(set(map(_name, leases))) == 1 == len(set(map(_queue, leases)))
            entries = [self._entry(leases[0])] * len(leases) if is_alike else list(map(self._entry, leases))
            if len(waited_us) < len(leases):
                for entry, tasks in Counter(entries).items() if waited_us else ():
                    entry.add_waited(waited_us, tasks)
            elif is_alike:
                entries[0].add_waited(waited_us)
            else:
                for place, entry in enumerate(entries):
                    entry.add_waited(waited_us[place : place + 1])
        return entries

    def settled(self, batch: Batch, lost: set[int], now: float) -> None:
        """Count what the store has settled, apart from what was lost; `now`: seconds since the epoch."""
        settlements, entries, times_s = batch
        with self._lock:
            self._roll(now)
            self._version += 1
            entry = entries[0]
            if not lost and entry is not None and entries.count(entry) == len(entries):
                entry.add_ran(times_s)
                entry.add_outcomes(settlements)
                return
            for one, entry, took_s in zip(settlements, entries, times_s, strict=True):
                if entry is not None:  # else it was handed back before it began
                    entry.add_ran((took_s,))
                    entry.count("lost" if one.id in lost else _outcome(one, entry.kind))

    def rescued(self, tasks: int, now: float) -> None:
        """Count tasks that this worker took back from others."""
        with self._lock:
            self._roll(now)
            self._version += 1
            counts = self._entries.setdefault(RESCUES, Entry(*RESCUES)).counts
            counts["rescued"] = counts.get("rescued", 0) + tasks

    def begin(self, incarnation: int, now: float) -> None:
        """Count for this incarnation from now on."""
        with self._lock:
            for span in self._spans.values():
                self._close(span)
                span.begin(now, self._snapshot())
            self._incarnation = incarnation

    def entries(self) -> list[Entry]:
        """Return the totals since the start, as they are now."""
        with self._lock:
            return list(self._snapshot().values())

    def unpublished(self, now: float) -> Published | None:
        """Return what has changed since it was last published; None: nothing."""
        with self._lock:
            self._roll(now)
            if self._version == self._published_version and not self._past:
                return None
            found: dict[int, list[Figure]] = {}
            for incarnation, figures in self._past:
                found.setdefault(incarnation, []).extend(figures)
            if self._version != self._published_version:
                snapshot = self._snapshot()
                for span in self._spans.values():
                    found.setdefault(self._incarnation, []).extend(span.figures(snapshot))
            return Published(found, len(self._past), self._version)

    def published(self, figures: Published) -> None:
        """Note that the store has these."""
        with self._lock:
            self._published_version = figures.version
            for _ in range(min(figures.past, len(self._past))):
                self._past.popleft()

    def _entry(self, lease: Lease) -> Entry:
        entry = self._by_name.get(lease.name)
        if entry is not None and entry.queue == lease.queue:
            return entry
        kind = self._kind_of(lease.name)
        name, queue = lease.name, lease.queue
        if (kind, name, queue) not in self._entries and len(self._entries) >= NAMES:
            name, queue = OTHERS, OTHERS
        entry = self._entries.get((kind, name, queue))
        if entry is None:
            entry = self._entries[kind, name, queue] = Entry(kind, name, queue)
        if name != OTHERS:
            self._by_name[name] = entry
        return entry

    def _snapshot(self) -> dict[_Key, Entry]:
        return {key: entry.copy() for key, entry in self._entries.items()}

    def _roll(self, now: float) -> None:
        """Close the spans that are over."""
        for span in self._spans.values():
            if now >= span.ends:
                self._close(span)
                span.begin(now, self._snapshot())

    def _close(self, span: "_Span") -> None:
        if self._incarnation and (figures := span.figures(self._snapshot())):
            self._past.append((self._incarnation, figures))


class _Span:
    """The minute or hour that is under way."""

    def __init__(self, span_s: int) -> None:
        self._span_s = span_s
        self._began = 0
        self._base: dict[_Key, Entry] = {}
        self.ends = 0.0

    def begin(self, now: float, base: dict[_Key, Entry]) -> None:
        """Count from these totals on. A clock that was set back does not begin a span anew."""
        self._began = max(self._began, int(now) // self._span_s * self._span_s)
        self.ends = self._began + self._span_s
        self._base = base

    def figures(self, totals: dict[_Key, Entry]) -> list[Figure]:
        """Return what has been counted in this span: of each name, each queue and each kind."""
        sums: dict[_Key, Entry] = {}
        for key, entry in totals.items():
            before = self._base.get(key)
            changed = entry if before is None else _difference(entry, before)
            if changed.counts or changed.waited or changed.ran:
                kind, name, queue = key
                for place in {(kind, name, queue), (kind, "", queue), (kind, "", "")}:
                    _add(sums.setdefault(place, Entry(*place)), changed)
        return [
            Figure(self._span_s, self._began, *key, one.counts, _packed(one.waited), _packed(one.ran))
            for key, one in sums.items()
        ]


def _bucket(time_us: float) -> int:
    """Return the bucket of a time; below a millisecond by a table, to the microsecond."""
    if time_us < len(_SMALL):
        return _SMALL[int(time_us)] if time_us > 0 else 0
    return math.ceil(math.log(time_us) * _PER_BUCKET)


def _outcome(settlement: Settlement, kind: str) -> str:
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


def _difference(entry: Entry, before: Entry) -> Entry:
    changed = Entry(entry.kind, entry.name, entry.queue)
    changed.counts = {one: n for one, total in entry.counts.items() if (n := total - before.counts.get(one, 0))}
    changed.waited = {one: n for one, total in entry.waited.items() if (n := total - before.waited.get(one, 0))}
    changed.ran = {one: n for one, total in entry.ran.items() if (n := total - before.ran.get(one, 0))}
    return changed


def _add(entry: Entry, more: Entry) -> None:
    for name, count in more.counts.items():
        entry.counts[name] = entry.counts.get(name, 0) + count
    for mine, theirs in ((entry.waited, more.waited), (entry.ran, more.ran)):
        for bucket, count in theirs.items():
            mine[bucket] = mine.get(bucket, 0) + count


def _packed(counts: dict[int, int]) -> bytes:
    return Histogram(tuple(sorted(counts.items()))).encoded()
