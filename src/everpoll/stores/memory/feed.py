"""The events of the memory store: one list, in the order in which they were written and numbered."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from everpoll.stores.contract import Event, EventPage, NewEvent
from everpoll.stores.feed_positions import place_in_feed
from everpoll.stores.memory.rows import TaskRow
from everpoll.stores.operations import UNNUMBERED, LogEntry


class Feed:
    """All events, and those of each task."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._of_tasks: defaultdict[int, dict[int, Event]] = defaultdict(dict)
        self._last = 0
        self._pruned = 0

    def add(self, row: TaskRow, now: float, events: Iterable[NewEvent]) -> None:
        """Add events of a task; those whose number exists already are ignored."""
        new = row.new
        for one in events:
            if one.seq < 0 or one.seq not in self._of_tasks.get(row.id, ()):
                self._write(LogEntry(new.kind, new.name, one.body, new.key, row.id), one.seq, now)

    def log(self, entry: LogEntry, now: float) -> None:
        """Write an event under a negative number of its own."""
        self._write(entry, UNNUMBERED, now)

    def _write(self, entry: LogEntry, seq: int, now: float) -> None:
        self._last += 1
        event = Event(
            task_id=entry.task_id,
            kind=entry.kind,
            name=entry.name,
            key=entry.key,
            seq=-self._last if seq < 0 else seq,
            at=datetime.fromtimestamp(now, UTC),
            body=msgspec.json.decode(entry.body),
            position=str(self._last),
        )
        self._events.append(event)
        self._of_tasks[entry.task_id][event.seq] = event

    def of_task(self, task_id: int, after: int, limit: int) -> list[Event]:
        """Return the events of one task, by number."""
        events = self._of_tasks.get(task_id, {})
        return [events[seq] for seq in sorted(events) if seq > after][:limit]

    def actions_of(self, task_id: int, limit: int) -> list[Event]:
        """Return the operations on one task, oldest first."""
        events = self._of_tasks.get(task_id, {})
        return [events[seq] for seq in sorted(events, reverse=True) if seq < 0][:limit]

    def page(self, after: str | None, limit: int) -> EventPage:
        """Return the events after a position."""
        if after is None:
            return EventPage((), str(self._last))
        place = place_in_feed(after)
        start = bisect_right(self._events, place, key=_place)
        found = tuple(self._events[start : start + limit])
        return EventPage(found, found[-1].position if found else after, place < self._pruned)

    def drop(self, oldest: float) -> None:
        """Drop the events before that instant."""
        for event in self._events:
            if event.at.timestamp() < oldest:
                self._pruned = max(self._pruned, _place(event))
                del self._of_tasks[event.task_id][event.seq]
                if not self._of_tasks[event.task_id]:
                    del self._of_tasks[event.task_id]
        self._events = [event for event in self._events if event.at.timestamp() >= oldest]


def _place(event: Event) -> int:
    return int(event.position)
