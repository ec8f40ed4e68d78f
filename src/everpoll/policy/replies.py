"""Replies: what a handler may return instead of a value: run again later, or cancel.

Promises: values only, checked when they are made. A snoozed task runs again after the delay; the snooze uses no
attempt and counts no failure. Never sleeps or cancels: the worker does that.
"""

from dataclasses import dataclass

from everpoll.policy.durations import Duration, human, seconds


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Snooze:
    """Returned by a job or a loop to run again later: `Snooze("30s")`."""

    delay_s: float

    def __init__(self, delay: Duration) -> None:
        object.__setattr__(self, "delay_s", seconds(delay, name="delay"))

    def __repr__(self) -> str:
        return f"Snooze({human(self.delay_s)!r})"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Returned by a job to cancel itself, with the reason."""

    reason: str = "canceled by the job itself"
