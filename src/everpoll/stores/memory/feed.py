"""The events of the memory store: one list, in the order in which they were written, which is that of their numbers."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from everpoll.stores.contract import Event, EventPage, NewEvent, place_in_feed


class Feed:
    """What happened to which task."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._of_tasks: defaultdict[int, dict[int, Event]] = defaultdict(dict)
        self._last = 0

    def add(self, task_id: int, name: str, key: str | None, now: float, events: Iterable[NewEvent]) -> None:
        """Write them down, but for those that are there already."""
        for new in events:
            if new.seq in self._of_tasks.get(task_id, ()):
                continue
            self._last += 1
            event = Event(
                task_id=task_id,
                name=name,
                key=key,
                seq=new.seq,
                at=datetime.fromtimestamp(now, UTC),
                body=msgspec.json.decode(new.body),
                position=str(self._last),
            )
            self._events.append(event)
            self._of_tasks[task_id][new.seq] = event

    def of_task(self, task_id: int, after: int, limit: int) -> list[Event]:
        """Those of one task, by number."""
        events = self._of_tasks.get(task_id, {})
        return [events[seq] for seq in sorted(events) if seq > after][:limit]

    def page(self, after: str | None, limit: int) -> EventPage:
        """Those behind a position."""
        if after is None:
            return EventPage((), str(self._last))
        start = bisect_right(self._events, place_in_feed(after), key=_place)
        found = tuple(self._events[start : start + limit])
        return EventPage(found, found[-1].position if found else after)

    def drop(self, oldest: float) -> None:
        """Forget what happened before that."""
        for event in self._events:
            if event.at.timestamp() < oldest:
                del self._of_tasks[event.task_id][event.seq]
                if not self._of_tasks[event.task_id]:
                    del self._of_tasks[event.task_id]
        self._events = [event for event in self._events if event.at.timestamp() >= oldest]


def _place(event: Event) -> int:
    return int(event.position)
