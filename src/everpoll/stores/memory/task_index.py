"""The index of tasks: the live ones, the ended ones, and the holder of each key.

Promises: a task is either live or ended; a key leads to at most one live task, and to the ended ones in their order.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from everpoll.stores.contract import EndState, TaskFilter
from everpoll.stores.memory.rows import TaskRow


class TaskIndex:
    """Finds rows by id and by key."""

    def __init__(self) -> None:
        self.live: dict[int, TaskRow] = {}
        self.history: dict[int, TaskRow] = {}
        self._keys: dict[tuple[str, str], int] = {}
        self._ended_keys: defaultdict[tuple[str, str], list[int]] = defaultdict(list)

    def __getitem__(self, task_id: int) -> TaskRow:
        return self.live.get(task_id) or self.history[task_id]

    def get(self, task_id: int) -> TaskRow | None:
        """Return the row, live or in history."""
        return self.live.get(task_id) or self.history.get(task_id)

    def put(self, row: TaskRow) -> None:
        """Add a live row, with its key."""
        self.live[row.id] = row
        if row.new.key is not None:
            self._keys[row.new.kind, row.new.key] = row.id

    def held(self, incarnation: int, task_id: int, sequence: int) -> TaskRow | None:
        """Return the row if it still is leased by this incarnation under this sequence: this is the fence."""
        row = self.live.get(task_id)
        if row is None or row.state != "running" or (row.incarnation, row.sequence) != (incarnation, sequence):
            return None
        return row

    def end(self, row: TaskRow, state: EndState, now: float) -> None:
        """Move a task into history; its key is free."""
        row.state, row.ended_at, row.deadline_at = state, now, None
        del self.live[row.id]
        if row.new.key is not None:
            del self._keys[row.new.kind, row.new.key]
            self._ended_keys[row.new.kind, row.new.key].append(row.id)
        self.history[row.id] = row

    def forget(self, row: TaskRow) -> None:
        """Remove a row from history."""
        del self.history[row.id]
        if row.new.key is not None:
            self._ended_keys[row.new.kind, row.new.key].remove(row.id)
            if not self._ended_keys[row.new.kind, row.new.key]:
                del self._ended_keys[row.new.kind, row.new.key]

    def release_key(self, row: TaskRow) -> None:
        """Take the key from a live row."""
        del self._keys[row.new.kind, row.new.key or ""]
        row.new = msgspec.structs.replace(row.new, key=None)

    def of_key(self, kind: str, key: str | None) -> TaskRow | None:
        """Return the live task of that kind that has the key."""
        return None if key is None else self.live.get(self._keys.get((kind, key), 0))

    def last_of_key(self, kind: str, key: str | None) -> TaskRow | None:
        """Return the indexed task that ended last of those that had the key."""
        ended = () if key is None else self._ended_keys.get((kind, key), ())
        return next((self.history[one] for one in reversed(ended) if self.history[one].new.indexed), None)

    def newest_first(self, wanted: TaskFilter, after: int | None) -> Iterator[TaskRow]:
        """Yield the rows that match, newest first."""
        for task_id in sorted({*self.live, *self.history}, reverse=True):
            row = self[task_id]
            if (after is None or task_id < after) and row.matches(wanted):
                yield row
