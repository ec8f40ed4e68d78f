"""Starts: which limited tasks run, and the starts that a rate counts.

Promises: a task runs from its lease until it is settled or taken back; nothing else is counted.
"""

from collections import defaultdict

from everpoll.policy.start_window import Span, counting, left, opens_at, started, window_s
from everpoll.stores.contract import Limit


class Starts:
    """Running tasks and starts, by key of a limit."""

    def __init__(self) -> None:
        self.running: defaultdict[str, set[int]] = defaultdict(set)
        self.spans: dict[str, list[Span]] = {}
        self._until: dict[str, float] = {}

    def may_start(self, limit: Limit, now: float) -> bool:
        """Return whether the limit allows one more task now."""
        if limit.running is not None and len(self.running.get(limit.key, ())) >= limit.running:
            return False
        return limit.starts is None or left(limit.starts, self._counting(limit, now)) > 0

    def opens_at(self, limit: Limit, now: float) -> float:
        """Return when the rate of a key allows the next start; infinity if the rate allows one now."""
        spans = [] if limit.starts is None else self._counting(limit, now)
        if limit.starts is None or left(limit.starts, spans) > 0:
            return float("inf")
        return opens_at(spans, window_s(limit.per_s))

    def started(self, task_id: int, limit: Limit, now: float) -> None:
        """Count one more start of the key."""
        self.running[limit.key].add(task_id)
        if limit.starts is not None:
            self.spans[limit.key] = started(self._counting(limit, now), now, 1, limit.per_s)
            self._until[limit.key] = now + window_s(limit.per_s)

    def forget(self, now: float) -> None:
        """Forget starts that no rate counts any more."""
        for key in [key for key, until in self._until.items() if until < now]:
            del self._until[key], self.spans[key]

    def ended(self, task_id: int, limit: Limit | None) -> None:
        """Forget that the task runs."""
        if limit is not None and (running := self.running.get(limit.key)) is not None:
            running.discard(task_id)
            if not running:
                del self.running[limit.key]

    def _counting(self, limit: Limit, now: float) -> list[Span]:
        return counting(self.spans.get(limit.key, ()), now, window_s(limit.per_s))
