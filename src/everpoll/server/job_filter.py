"""The filter of jobs, the same for the list and for bulk actions: an order touches exactly what the list shows."""

from datetime import datetime

from msgspec import Struct, field

from everpoll.stores.contract import TaskFilter, TaskState


class JobFilter(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs. An empty text counts as absent."""

    state: TaskState | None = None
    queue: str | None = None
    name: str | None = None
    error: str | None = None
    """The class of its last error, as "ValueError"."""
    q: str | None = None
    """A text in its arguments, or `member:value`, as "user:7"."""
    since: datetime | None = field(default=None, name="from")
    """Enqueued then or later …"""
    until: datetime | None = field(default=None, name="to")
    """… and before that."""
    ended_from: datetime | None = None
    """Ended then or later: only ended jobs …"""
    ended_to: datetime | None = None
    """… and before that."""
    retrying: bool = False
    """Only jobs that failed and wait for their next attempt."""

    @property
    def wanted(self) -> TaskFilter:
        """As the store wants it."""
        # Written as in the dashboard: the member of an argument.
        q = None if self.q is None else self.q.removeprefix("args.")
        return TaskFilter(
            state=self.state,
            queue=self.queue or None,
            name=self.name or None,
            kind="job",
            error=self.error or None,
            q=q or None,
            since=self.since,
            until=self.until,
            ended_since=self.ended_from,
            ended_until=self.ended_to,
            is_retrying=self.retrying,
        )
