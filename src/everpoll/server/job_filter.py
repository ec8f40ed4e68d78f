"""The filter of jobs for the list and for bulk actions: an action changes exactly the jobs in the list."""

from datetime import datetime

from msgspec import Struct, field

from everpoll.stores.contract import TaskFilter, TaskState


class JobFilter(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A filter of jobs. An empty text counts as absent."""

    state: TaskState | None = None
    queue: str | None = None
    name: str | None = None
    error: str | None = None
    """The class of the last error, such as "ValueError"."""
    q: str | None = None
    """A text in the arguments, or `member:value`, such as "user:7"."""
    since: datetime | None = field(default=None, name="from")
    """Only jobs that were enqueued at this time or later."""
    until: datetime | None = field(default=None, name="to")
    """Only jobs that were enqueued before this time."""
    ended_from: datetime | None = None
    """Only jobs that ended at this time or later."""
    ended_to: datetime | None = None
    """Only jobs that ended before this time."""
    retrying: bool = False
    """Only jobs that failed and wait for their next attempt."""

    @property
    def wanted(self) -> TaskFilter:
        """The filter for the store."""
        # `member:value`, as the dashboard writes it.
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
