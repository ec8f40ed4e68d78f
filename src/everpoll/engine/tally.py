"""The tally of one worker: how many tasks ended with which outcome, how long they waited and how long they ran.

    leased ──▶ how long it waited     ended ──▶ how long it ran     settled ──▶ its outcome

Totals since the start, for metrics; figures of each span, for charts, are differences between totals.

Promises: an outcome is counted once the store has written it, and a result that was dropped counts as lost. At most
NAMES names are counted separately; the tasks of further ones are counted together. A batch of tasks of one name is
counted as a whole: 0.25 µs a job in batches of 500, 0.35 with 50 slots. The heartbeat's thread may read at any time.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from everpoll.engine.tally_entry import Entry, outcome_of
from everpoll.policy import Histogram
from everpoll.stores.contract import Lease, Settlement
from everpoll.stores.figures import KEPT_S, OTHERS, Figure

NAMES = 100
PENDING = 600
"""How many past spans are kept while the database is away; beyond that, the oldest are dropped."""
RESCUES = ("worker", "", "")
"""Kind, name and queue under which rescued tasks are counted: a rescue does not report their names."""

_Key = tuple[str, str, str]

_name, _queue = attrgetter("name"), attrgetter("queue")


class Batch(NamedTuple):
    """Settlements, each with the entry that counts its end (None: the run never began) and the duration of its run."""

    settlements: Sequence[Settlement]
    entries: Sequence[Entry | None]
    times_s: Sequence[float]

    def part(self, start: int, end: int) -> "Batch":
        """Return the part from `start` to `end`."""
        return Batch(self.settlements[start:end], self.entries[start:end], self.times_s[start:end])


class Published:
    """Figures to be published, of one or two incarnations of the worker."""

    __slots__ = ("by_incarnation", "past", "version")

    def __init__(self, by_incarnation: dict[int, list[Figure]], past: int, version: int) -> None:
        self.by_incarnation = by_incarnation
        self.past = past
        self.version = version


class Tally:
    """Counts of one worker since it started. `kind_of` returns the kind of the tasks of a name."""

    def __init__(self, kind_of: Callable[[str], str]) -> None:
        self._kind_of = kind_of
        self._entries: dict[_Key, Entry] = {}
        self._by_name: dict[str, Entry] = {}
        self._lock = threading.RLock()
        self._version = self._published_version = 0
        self._incarnation = 0
        self._spans = {span_s: _Span(span_s) for span_s in KEPT_S}
        self._past: deque[tuple[int, list[Figure]]] = deque(maxlen=PENDING)

    def leased(self, leases: Sequence[Lease], waited_us: Sequence[float]) -> Iterable[Entry]:
        """Count how long these tasks waited; return for each the entry that counts its end.

        `waited_us` has one value for each lease, a single value for all, or none if the times are unknown.
        """
        with self._lock:
            # Tasks that are leased together mostly have one name.
            is_alike = len(set(map(_name, leases))) == 1 == len(set(map(_queue, leases)))
            entries = [self._entry(leases[0])] * len(leases) if is_alike else list(map(self._entry, leases))
            is_each = len(waited_us) == len(leases)
            if is_alike and waited_us:
                entries[0].add_waited(waited_us, 1 if is_each else len(leases))
            elif is_each:
                for place, entry in enumerate(entries):
                    entry.add_waited(waited_us[place : place + 1])
            elif waited_us:
                for entry, tasks in Counter(entries).items():
                    entry.add_waited(waited_us, tasks)
        return entries

    def settled(self, batch: Batch, lost: set[int], now: float) -> None:
        """Count what the store has settled, and what was lost. `now` is in seconds since the epoch."""
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
                    entry.count("lost" if one.id in lost else outcome_of(one, entry.kind))

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
        """Return the totals since the start."""
        with self._lock:
            return list(self._snapshot().values())

    def unpublished(self, now: float) -> Published | None:
        """Return what has changed since it was last published; None if nothing has."""
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
        """Record that the store has these figures."""
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
    """The span of one length that is under way: the minute, the hour …"""

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
        """Return what was counted in this span, by name, by queue and by kind."""
        sums: dict[_Key, Entry] = {}
        for key, entry in totals.items():
            before = self._base.get(key)
            changed = entry if before is None else entry.since(before)
            if changed.counts or changed.waited or changed.ran:
                kind, name, queue = key
                for place in {(kind, name, queue), (kind, "", queue), (kind, "", "")}:
                    sums.setdefault(place, Entry(*place)).add(changed)
        return [
            Figure(self._span_s, self._began, *key, one.counts, _packed(one.waited), _packed(one.ran))
            for key, one in sums.items()
        ]


def _packed(counts: dict[int, int]) -> bytes:
    return Histogram(tuple(sorted(counts.items()))).encoded()
