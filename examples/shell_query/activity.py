"""One started query inside the simulated cloud: what each of its interfaces says of it, and when. Pure.

    start ──queued_s──▶ processing ──runs_s──▶ ended ──reported_after_s──▶ the status says so
                                                 └────rows_after_s──▶ the rowset endpoint knows

The three need not agree, and do not: that is what the watch is up against.
"""

from dataclasses import dataclass

from examples.shell_query.fates import Fate


@dataclass(slots=True)
class Activity:
    """One TaskID."""

    task_id: str
    customer_key: str
    fate: Fate
    started_at_s: float
    stopped_at_s: float | None = None
    """When a client stopped it."""
    broken_at_s: float | None = None
    """When its QueryDefinition was deleted while it ran."""

    def age_s(self, now_s: float) -> float:
        """Since its start."""
        return now_s - self.started_at_s

    def is_running(self, now_s: float) -> bool:
        """The truth, which no interface tells reliably."""
        if self.stopped_at_s is not None or self.broken_at_s is not None:
            return False
        return self.age_s(now_s) < self.fate.runs_s

    def says_it_runs(self, now_s: float) -> bool:
        """What REST says."""
        age_s = self.age_s(now_s)
        return self.is_running(now_s) and not any(since <= age_s < until for since, until in self.fate.not_running)

    def is_forgotten(self, now_s: float) -> bool:
        """Whether a look by TaskID finds nothing."""
        since, until = self.fate.forgotten or (0.0, 0.0)
        return since <= self.age_s(now_s) < until

    def status(self, now_s: float) -> str:
        """What SOAP says."""
        if self.stopped_at_s is not None:
            return "Canceled"
        if self.broken_at_s is not None:
            return "Error"
        age_s = self.age_s(now_s)
        if age_s >= self.fate.runs_s + self.fate.reported_after_s:
            return self.fate.complete if self.fate.error is None else self.fate.failed
        is_queued = age_s < self.fate.queued_s or self.fate.completed_date_after_s is not None
        return "Queued" if is_queued else "Processing"

    def error(self, now_s: float) -> str:
        """The message that SOAP carries."""
        if self.broken_at_s is not None:
            return "the QueryDefinition was deleted while it ran"
        is_reported = self.age_s(now_s) >= self.fate.runs_s + self.fate.reported_after_s
        return (self.fate.error or "") if is_reported and self.stopped_at_s is None else ""

    def completed_at_s(self, now_s: float) -> float | None:
        """The completion date that SOAP carries, true or not."""
        early_s = self.fate.completed_date_after_s
        if early_s is not None and self.age_s(now_s) >= early_s:
            return self.started_at_s + early_s
        if self.stopped_at_s is not None or self.broken_at_s is not None:
            return self.stopped_at_s or self.broken_at_s
        is_reported = self.age_s(now_s) >= self.fate.runs_s + self.fate.reported_after_s
        return self.started_at_s + self.fate.runs_s if is_reported else None

    def has_rows(self, now_s: float) -> bool:
        """Whether the rowset endpoint knows of the result."""
        if self.fate.error is not None or self.stopped_at_s is not None or self.broken_at_s is not None:
            return False
        return self.age_s(now_s) >= self.fate.runs_s + self.fate.rows_after_s
